"""The Identities service: a token for callers who prove an identity of the cluster's cloud."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import structlog

from eva_master.adapters.identities.prover import IdentityProver
from eva_master.adapters.identities.sts import Proof
from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.adapters.rpc.handlers import Context
from eva_master.adapters.rpc.log_pace import LogPace
from eva_master.adapters.rpc.server.admission.places import AddressPlaces, address_of
from eva_master.adapters.rpc.server.admission.strangers import expiry_of
from eva_master.adapters.rpc.server.tokens import token_message
from eva_master.adapters.store import UserTokens
from eva_wire._proto.api_pb2_grpc import IdentitiesServicer
from eva_wire.rpc.identity import AWS
from eva_wire.values.errors import Busy, InvalidRequest, NotAuthenticated, NotAuthorised

LIFETIME_MS = 12 * 3_600_000
"""How long a token lasts that an identity gets."""
_AT_ONCE = 32
_PER_ADDRESS = 4
"""Proofs that are looked at."""
_REFUSED_S = 1.0
"""A refused proof holds its place for so long: few are tried, and STS is asked little."""

log = structlog.get_logger(__name__)


class IdentitiesService(IdentitiesServicer):
    """Serves strangers, within `Strangers`' limits.

    Args:
        tokens: The tokens of this cluster.
        prover: Decides about proofs; `None` for a cluster that lets no identity in.
        refused_s: How long a refusal takes.
    """

    def __init__(
        self, tokens: UserTokens, prover: IdentityProver | None, refused_s: float = _REFUSED_S
    ) -> None:
        self._tokens = tokens
        self._prover = prover
        self._refused_s = refused_s
        self._places = AddressPlaces(_AT_ONCE, _PER_ADDRESS, first_come=True)
        self._refusals = LogPace()
        # A thread of its own, so that no other call is waited for.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="identities")

    @property
    def open(self) -> bool:
        """Whether some identities are let in."""
        return self._prover is not None

    async def Challenge(  # noqa: N802
        self,
        request: pb.ChallengeRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> pb.ChallengeResponse:
        """Answer with the terms of a proof."""
        terms = self._known().challenge()
        return pb.ChallengeResponse(
            kind=AWS,
            nonce=terms.nonce,
            cluster=terms.cluster,
            authority=terms.authority,
            region=terms.region,
            host=terms.host,
        )

    async def Prove(  # noqa: N802
        self, request: pb.ProveRequest, context: Context
    ) -> pb.CreateTokenResponse:
        """Make a token for an identity that is proved."""
        prover, peer = self._known(), context.peer()
        timer = asyncio.timeout(None)
        end = self._places.enter(address_of(peer), expiry_of(timer))
        if end is None:
            raise _busy()
        try:
            async with timer:
                return await self._proved(prover, request, peer)
        except TimeoutError:  # Another address had fewer places.
            raise _busy() from None
        except (NotAuthenticated, NotAuthorised) as error:
            self._refusals.warning("identity refused", peer=peer, reason=error.message)
            await asyncio.sleep(self._refused_s)
            raise
        finally:
            end()

    async def _proved(
        self, prover: IdentityProver, request: pb.ProveRequest, peer: str
    ) -> pb.CreateTokenResponse:
        grant, arn = await prover.prove(
            Proof(
                request.nonce,
                request.credential,
                request.date,
                request.signature,
                request.session_token,
            )
        )
        token, secret = await asyncio.get_running_loop().run_in_executor(
            self._thread, self._tokens.issue_temporary, grant.owner, grant.role, LIFETIME_MS, arn
        )
        log.info(
            "token made for an identity",
            token=token.id,
            owner=token.owner,
            role=token.role.value,
            arn=arn,
            peer=peer,
        )
        return pb.CreateTokenResponse(token=token_message(token, self._tokens.now()), secret=secret)

    def _known(self) -> IdentityProver:
        if self._prover is None:
            raise InvalidRequest(
                "this master lets no identities of a cloud in",
                hint="use a token of yours (`token` in your settings), or have an operator set "
                "ec2.identities",
            )
        return self._prover


def identities_service(tokens: UserTokens, prover: IdentityProver | None) -> IdentitiesService:
    """The service of a master that starts.

    Revokes the tokens of identities that it would give none now, or another one.

    Args:
        tokens: The tokens of this cluster.
        prover: Has the list of identities that are let in; `None` for an empty one.

    Raises:
        StorageError: The database refused.
    """
    for token in tokens.revoke_outdated(
        lambda arn: None if prover is None else prover.granted(arn)
    ):
        log.info(
            "token revoked, since its identity is not let in as it was",
            token=token.id,
            owner=token.owner,
            arn=token.identity,
        )
    return IdentitiesService(tokens, prover)


def _busy() -> Busy:
    return Busy.until("too many callers of your address prove who they are", 1.0)
