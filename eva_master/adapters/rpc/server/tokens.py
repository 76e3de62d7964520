"""The Tokens service: makes, lists and revokes users' tokens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import structlog

from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.adapters.rpc.handlers import Context
from eva_master.adapters.rpc.server.access import caller
from eva_master.adapters.store import UserTokens
from eva_wire._proto.api_pb2_grpc import TokensServicer
from eva_wire.values.errors import InvalidConfig, NotFound
from eva_wire.values.ids import Millis
from eva_wire.values.users import Role, UserToken

_LONGEST_LIFETIME_MS = 100 * 365 * 86_400_000

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Login:
    """Codes with which browsers log in to the pages.

    Attributes:
        code: Makes one for the token of an id.
        lifetime_ms: How long it is good.
        address: Where pages are served under a name of their own; empty for nowhere.
    """

    code: Callable[[str], str]
    lifetime_ms: int
    address: Callable[[], str] = str


class TokensService(TokensServicer):
    """Makes, lists and revokes tokens; behind an `AccessInterceptor`.

    Args:
        tokens: The tokens of this cluster.
        login: Makes codes with which browsers log in to the pages.
    """

    def __init__(self, tokens: UserTokens, login: Login | None = None) -> None:
        self._tokens = tokens
        self._login = login
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
        return pb.CreateTokenResponse(token=token_message(token, self._tokens.now()), secret=secret)

    async def List(  # noqa: N802
        self,
        request: pb.ListTokensRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> pb.ListTokensResponse:
        """List all tokens, expired and revoked ones included, oldest first."""
        now = self._tokens.now()
        return pb.ListTokensResponse(
            tokens=[token_message(token, now) for token in self._tokens.all()]
        )

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
        return token_message(caller(), self._tokens.now())

    async def Login(  # noqa: N802
        self,
        request: pb.LoginRequest,  # noqa: ARG002
        context: Context,  # noqa: ARG002
    ) -> pb.LoginResponse:
        """Make a code with which the caller's browser logs in, once."""
        if self._login is None:
            raise NotFound("this master serves no pages")
        login, who = self._login, caller()
        log.info("code made for a browser", token=who.id, owner=who.owner)
        return pb.LoginResponse(
            code=login.code(who.id), lifetime_ms=login.lifetime_ms, address=login.address()
        )


def _role(name: str) -> Role:
    try:
        return Role(name)
    except ValueError as error:
        raise InvalidConfig(
            f"there is no role {name!r}", hint=f"roles are {', '.join(Role)}"
        ) from error


def token_message(token: UserToken, now: Millis) -> pb.Token:
    """A token for those who may see it."""
    return pb.Token(
        id=token.id,
        owner=token.owner,
        role=token.role.value,
        created_ms=token.created_ms,
        expires_ms=token.expires_ms or 0,
        revoked_ms=token.revoked_ms or 0,
        now_ms=now,
    )
