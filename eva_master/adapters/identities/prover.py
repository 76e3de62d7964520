"""Lets callers in who prove an AWS identity that is on a cluster's list."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from eva_master.adapters.identities.nonces import Nonces
from eva_master.adapters.identities.principals import AdmittedIdentity, Grant, grant, principal_of
from eva_master.adapters.identities.sts import Proof, Sts
from eva_wire.rpc.errors import BadRequest
from eva_wire.rpc.identity import LIFETIME_S, signed_headers
from eva_wire.values.errors import CloudError, NotAuthenticated, NotAuthorised
from eva_wire.values.users import Role

_CREDENTIAL = re.compile(r"[A-Za-z0-9_]{1,128}/[0-9]{8}/([a-z0-9-]{1,40})/sts/aws4_request")
_DATE = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_SIGNATURE = re.compile(r"[0-9a-f]{64}")
_SESSION_TOKEN = re.compile(r"[A-Za-z0-9+/=_-]{0,16384}")
_NONCE = re.compile(r"[0-9a-f.]{1,200}")


@dataclass(frozen=True, slots=True)
class Challenge:
    """The terms of a proof.

    Attributes:
        nonce: Good once.
        cluster: Name of the cluster.
        authority: Digest of its authority.
        region: Region that the proof is signed for.
        host: Host that the proof is signed for.
    """

    nonce: str
    cluster: str
    authority: str
    region: str
    host: str


class IdentityProver:
    """Makes challenges, and decides about the proofs. Only the asyncio thread uses it.

    Args:
        cluster: Name of the cluster.
        authority: Digest of its authority.
        sts: Tells whose signature a proof has.
        entries: The list.
        wall: The time, in milliseconds since 1970.
        nonces: Makes the nonces.
    """

    def __init__(
        self,
        cluster: str,
        authority: str,
        *,
        sts: Sts,
        entries: Sequence[AdmittedIdentity],
        wall: Callable[[], int],
        nonces: Nonces | None = None,
    ) -> None:
        self._cluster, self._authority = cluster, authority
        self._sts = sts
        self._entries = tuple(entries)
        self._wall = wall
        self._nonces = nonces or Nonces()

    def challenge(self) -> Challenge:
        """The terms of the next proof."""
        nonce = self._nonces.make()
        return Challenge(nonce, self._cluster, self._authority, self._sts.region, self._sts.host)

    async def prove(self, proof: Proof) -> tuple[Grant, str]:
        """Check a proof.

        Returns:
            Owner and role, and the ARN of the caller.

        Raises:
            BadRequest: No correct client sends such a proof.
            ChallengeOver: Its nonce is not good, or no longer.
            NotAuthenticated: The signature proves nothing.
            NotAuthorised: The identity is not on the list.
            CloudError: STS cannot be asked.
            Busy: Too many proofs were made.
        """
        self._check(proof)
        self._nonces.use(proof.nonce)
        signed = signed_headers(self._cluster, self._authority, proof.nonce)
        arn = await self._sts.caller(proof, signed)
        try:
            principal, session = principal_of(arn)
        except ValueError:
            raise CloudError("STS names a caller who is no user and no role") from None
        return grant(self._entries, principal, session), arn

    def granted(self, arn: str) -> tuple[str, Role] | None:
        """Owner and role that the caller of an ARN would get now; `None` for none."""
        try:
            given = grant(self._entries, *principal_of(arn))
        except (ValueError, NotAuthorised):
            return None
        return given.owner, given.role

    def _check(self, proof: Proof) -> None:
        """Check all that can be told without asking STS."""
        scope = _CREDENTIAL.fullmatch(proof.credential)
        well_formed = (
            scope is not None
            and _DATE.fullmatch(proof.date)
            and _SIGNATURE.fullmatch(proof.signature)
            and _SESSION_TOKEN.fullmatch(proof.session_token)
            and _NONCE.fullmatch(proof.nonce)
        )
        if scope is None or not well_formed:
            raise BadRequest("this is no presigned GetCallerIdentity")
        if scope[1] != self._sts.region:
            raise NotAuthenticated(
                f"the proof is for STS of {scope[1]}, and this master asks that of "
                f"{self._sts.region}",
                hint=f"sign for {self._sts.region}",
            )
        try:
            made = datetime.strptime(proof.date, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        except ValueError:
            raise BadRequest("this is no date of a presigned request") from None
        age_s = self._wall() / 1000 - made.timestamp()
        if abs(age_s) > LIFETIME_S:
            when = f"{abs(age_s):.0f} s {'ago' if age_s > 0 else 'in the future'}"
            raise NotAuthenticated(
                f"the proof was signed {when} by the master's clock; {LIFETIME_S} s are allowed",
                hint="see that the clock of your machine is right: compare date -u",
            )
