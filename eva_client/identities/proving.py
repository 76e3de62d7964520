"""Gets a token for an identity, and keeps it until it ends."""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Iterable

from eva_client.identities import aws
from eva_client.rpc.connection import Connection
from eva_client.settings import ClientConfig
from eva_wire._proto import api_pb2 as pb
from eva_wire._proto.api_pb2_grpc import IdentitiesStub
from eva_wire.files import write_file
from eva_wire.rpc.identity import authority_digests
from eva_wire.settings.common import user_state_dir
from eva_wire.values.errors import Busy, ChallengeOver, EvaError, InvalidConfig

_TRIES = 4
_SPARE_S = 3_600
"""A token that ends within so long makes way for another."""


class Proving(Connection):
    """A connection without a token, to get one."""

    def token(self, digests: list[str]) -> pb.CreateTokenResponse:
        """Prove who the caller is.

        Args:
            digests: Of the authorities that the master is verified with.

        Raises:
            EvaError: The master does not let the caller in.
        """
        stub = IdentitiesStub(self._channel)
        for tries_left in reversed(range(_TRIES)):
            challenge = self._call(stub.Challenge, pb.ChallengeRequest())
            request = pb.ProveRequest(**aws.proof(challenge, digests))
            try:
                return self._call(stub.Prove, request)
            except ChallengeOver:  # The master was restarted in between.
                if not tries_left:
                    raise
            except Busy as error:
                if not tries_left:
                    raise
                time.sleep(error.retry_after_ms / 1000)
        raise AssertionError("unreachable: the last try returns or raises")


class KeptToken:
    """The token that an identity has for a cluster; its file is for its user alone to read.

    Args:
        config: The command's settings.

    Attributes:
        proved: Whether the identity had to be proved.
    """

    def __init__(self, config: ClientConfig) -> None:
        self.proved = False
        self._config = config
        self._authorities = config.authorities()
        key = _digest([config.address, self._authorities.decode(errors="replace"), *aws.whose()])
        self._file = user_state_dir() / "identities" / f"{key}.json"

    def secret(self) -> str:
        """The token's secret, of a token that lasts for a while; proves the identity if need be.

        Raises:
            EvaError: The master does not let the caller in, and there is no other token in force.
        """
        kept, left_s = self._kept()
        if left_s > _SPARE_S:
            return kept
        try:
            return self._proved()
        except EvaError:
            if left_s > 0:
                return kept
            raise

    def forget(self) -> None:
        """Do without the token: the master does not take it any more."""
        self._file.unlink(missing_ok=True)

    def _proved(self) -> str:
        try:
            digests = authority_digests(self._authorities)
        except ValueError:
            raise InvalidConfig(f"ca_file: {self._config.ca_file} is no PEM file") from None
        self.proved, asked_s = True, time.time()
        with Proving(self._config.address, authorities=self._authorities, token="") as master:
            made = master.token(digests)
        ends_s = asked_s + (made.token.expires_ms - made.token.now_ms) / 1000
        content = json.dumps({"secret": made.secret, "ends_s": ends_s})
        with contextlib.suppress(OSError):  # Then the next command proves it anew.
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_file(self._file, content.encode(), mode=0o600)
        return made.secret

    def _kept(self) -> tuple[str, float]:
        """The token of an earlier command, and seconds until it ends."""
        try:
            content = json.loads(self._file.read_bytes())
            return str(content["secret"]), float(content["ends_s"]) - time.time()
        except (OSError, ValueError, KeyError, TypeError):
            return "", 0.0


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
