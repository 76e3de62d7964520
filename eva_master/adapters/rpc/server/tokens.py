"""The Tokens service: makes, lists and revokes users' tokens."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import structlog

from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.adapters.rpc.handlers import Context
from eva_master.adapters.rpc.server.access import caller
from eva_master.adapters.store import UserTokens
from eva_wire._proto.api_pb2_grpc import TokensServicer
from eva_wire.values.errors import InvalidConfig
from eva_wire.values.ids import Millis
from eva_wire.values.users import Role, UserToken

_LONGEST_LIFETIME_MS = 100 * 365 * 86_400_000

log = structlog.get_logger(__name__)


class TokensService(TokensServicer):
    """Makes, lists and revokes tokens; behind an `AccessInterceptor`.

    Args:
        tokens: The tokens of this cluster.
    """

    def __init__(self, tokens: UserTokens) -> None:
        self._tokens = tokens
        # A thread of its own, so that no other call is waited for.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tokens")

    async def Create(  # noqa: N802
        self,
        request: pb.CreateTokenRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.CreateTokenResponse:
        """Make a token; its secret is in the answer and nowhere else."""
        role = _role(request.role)
        if request.lifetime_ms > _LONGEST_LIFETIME_MS:
            raise InvalidConfig("a token lasts a hundred years at most", hint="let it have no end")
        lifetime_ms = request.lifetime_ms or None
        token, secret = await asyncio.get_running_loop().run_in_executor(
            self._thread, self._tokens.create, request.owner, role, lifetime_ms
        )
        log.info(
            "token made", token=token.id, owner=token.owner, role=role.value, by=caller().owner
        )
        return pb.CreateTokenResponse(token=_message(token, self._tokens.now()), secret=secret)

    async def List(  # noqa: N802
        self,
        request: pb.ListTokensRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> pb.ListTokensResponse:
        """List all tokens, expired and revoked ones included, oldest first."""
        now = self._tokens.now()
        return pb.ListTokensResponse(tokens=[_message(token, now) for token in self._tokens.all()])

    async def Revoke(  # noqa: N802
        self,
        request: pb.RevokeTokenRequest,
        context: Context,  # noqa: ARG002
    ) -> pb.RevokeTokenResponse:
        """Revoke a token: the next call with it is refused."""
        token = await asyncio.get_running_loop().run_in_executor(
            self._thread, self._tokens.revoke, request.id
        )
        log.info("token revoked", token=token.id, owner=token.owner, by=caller().owner)
        return pb.RevokeTokenResponse()

    async def WhoAmI(  # noqa: N802
        self,
        request: pb.WhoAmIRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> pb.Token:
        """Answer with the token of the caller."""
        return _message(caller(), self._tokens.now())


def _role(name: str) -> Role:
    try:
        return Role(name)
    except ValueError as error:
        raise InvalidConfig(
            f"there is no role {name!r}", hint=f"roles are {', '.join(Role)}"
        ) from error


def _message(token: UserToken, now: Millis) -> pb.Token:
    return pb.Token(
        id=token.id,
        owner=token.owner,
        role=token.role.value,
        created_ms=token.created_ms,
        expires_ms=token.expires_ms or 0,
        revoked_ms=token.revoked_ms or 0,
        now_ms=now,
    )
