"""Decides who may call which method on the users' port.

A caller proves their identity with ``authorization: Bearer SECRET``; the token names the owner of
what they submit, and its role what they may call. A method that is not in the table `METHODS` is
refused.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from typing import Any

import grpc
import structlog

from eva_master.adapters.rpc.handlers import Context, Handler, HandlerInterceptor, wrapped
from eva_master.adapters.rpc.log_pace import LogPace
from eva_master.adapters.rpc.server.admission.connections import Callers
from eva_master.adapters.rpc.server.admission.pacing import Pacing
from eva_master.adapters.rpc.server.admission.requests import checked
from eva_master.adapters.rpc.server.admission.strangers import Strangers, only
from eva_master.adapters.store import UserTokens
from eva_wire.rpc.methods import METHODS
from eva_wire.values.errors import NotAuthenticated, NotAuthorised
from eva_wire.values.users import Role, UserToken

AUTHORIZATION = "authorization"
_SCHEME = "bearer"

log = structlog.get_logger(__name__)

_CALLER: ContextVar[UserToken] = ContextVar("caller")
_TOKENS: ContextVar[UserTokens] = ContextVar("tokens")


def caller() -> UserToken:
    """The token of the call that is being handled; for handlers behind an `AccessInterceptor`."""
    return _CALLER.get()


def check_caller() -> None:
    """Check that the token of the call that is being handled is still valid.

    Raises:
        NotAuthenticated: The token has expired or was revoked.
    """
    _TOKENS.get().check(caller().id)


def require_owner(owner: str, what: str) -> None:
    """Check that the caller owns something or is an operator.

    Args:
        owner: The owner of the thing.
        what: Names the thing in the message.

    Raises:
        NotAuthorised: The job belongs to another owner.
    """
    who = caller()
    if who.owner == owner or who.role is Role.OPERATOR:
        return
    log.warning("refused", token=who.id, owner=who.owner, role=who.role.value, what=what, of=owner)
    raise NotAuthorised(
        f"{what} belongs to {owner}; you are {who.owner}, with role {who.role}",
        hint=f"ask {owner} or an operator to do it",
    )


def require_role(needed: Role, what: str) -> None:
    """Check the role of the caller, where a method alone does not say which is needed.

    Args:
        needed: The least role.
        what: Names the method in the message.

    Raises:
        NotAuthorised: The caller's role is another one.
    """
    who = caller()
    if not who.role.covers(needed):
        log.warning("refused", token=who.id, owner=who.owner, role=who.role.value, what=what)
        raise role_refusal(who, needed, what)


def role_refusal(token: UserToken, needed: Role | None, what: str) -> NotAuthorised:
    """The refusal of a token whose role is not sufficient."""
    return NotAuthorised(
        f"{what} needs role {needed or 'none that there is'}; "
        f"you are {token.owner}, with role {token.role}",
        hint="ask an operator for a token of that role, or to do it for you",
    )


class AccessInterceptor(HandlerInterceptor):
    """Lets a call through if its token is in force and of a sufficient role, and not too many.

    An `ErrorInterceptor` before it tells the caller why a call was refused. Requests of calls that
    are refused, or wait in line, are not read. A stream ends with its token, which is checked
    before each answer.

    Args:
        tokens: The tokens of this cluster.
        pacing: Rates that users are granted.

    Attributes:
        pacing: Rates that users are granted.
        strangers: Serves callers without a token.
        callers: Users by their connections.
    """

    def __init__(self, tokens: UserTokens, pacing: Pacing | None = None) -> None:
        self._tokens = tokens
        self.pacing = pacing or Pacing()
        self.strangers = Strangers()
        self.callers = Callers()
        self._refusals = LogPace()

    def wrap(
        self, handler: grpc.RpcMethodHandler[Any, Any], method: str
    ) -> grpc.RpcMethodHandler[Any, Any]:
        """Wrap a handler; health, reflection and joining are for callers without a token."""
        row = METHODS.get(method)
        if not method.startswith("/eva.") or (row is not None and row.role is None):
            return self.strangers.wrapped(handler)
        return wrapped(
            handler,
            lambda behaviour: self._guarded(behaviour, handler, method),
            request_streaming=True,
            serializer=_serializer(handler.response_serializer),
        )

    def _guarded(
        self, behaviour: Handler, handler: grpc.RpcMethodHandler[Any, Any], method: str
    ) -> Handler:
        async def request(requests: AsyncIterator[Any], context: Context) -> Any:
            return requests if handler.request_streaming else checked(await only(context))

        async def generator(requests: Any, context: Context) -> AsyncIterator[Any]:
            token = self._admit(context, method)
            _until_over(context, await self.pacing.begin(token.owner, METHODS[method].line))
            async for response in behaviour(await request(requests, context), context):
                self._tokens.check(token.id)
                yield response

        async def coroutine(requests: Any, context: Context) -> Any:
            owner = self._admit(context, method).owner
            _until_over(context, await self.pacing.begin(owner, METHODS[method].line))
            return await behaviour(await request(requests, context), context)

        return generator if inspect.isasyncgenfunction(behaviour) else coroutine

    def _admit(self, context: Context, method: str) -> UserToken:
        try:
            token = self._tokens.authenticate(_secret(context))
        except NotAuthenticated as error:
            self._refusals.warning(
                "refused", method=method, peer=context.peer(), reason=error.message
            )
            raise
        self.callers.admit(context.peer(), token.owner)
        self.permit(token, method, context.peer())
        return token

    def permit(self, token: UserToken, method: str, peer: str) -> None:
        """Make a token the caller's, if its role may call a method.

        Args:
            token: The token, which is in force.
            method: Full name of the method.
            peer: Place that the call comes from, for the log.

        Raises:
            NotAuthorised: The role is not sufficient.
        """
        row = METHODS.get(method)
        needed = None if row is None else row.role
        if needed is None or not token.role.covers(needed):
            self._refusals.warning(
                "refused",
                method=method,
                peer=peer,
                token=token.id,
                owner=token.owner,
                role=token.role.value,
            )
            raise role_refusal(token, needed, method.rpartition(".")[2].replace("/", "."))
        # Each call is a task of its own, with a context of its own.
        _CALLER.set(token)
        _TOKENS.set(self._tokens)


def _until_over(context: Context, end: Callable[[], None]) -> None:
    """End something with a call: when its last answer is sent or its caller has gone."""
    ended = False

    def once(_: Any = None) -> None:
        nonlocal ended
        if not ended:
            ended = True
            end()

    context.add_done_callback(once)  # type: ignore[arg-type]  # it is called with the context
    if context.done():  # it has gone already, and nobody will say so again
        once()


def _serializer(encode: Callable[[Any], bytes] | None) -> Callable[[Any], bytes]:
    """Encode a message, unless it is encoded already."""

    def encoded(message: Any) -> bytes:
        return message if isinstance(message, bytes) or encode is None else encode(message)

    return encoded


def _secret(context: Context) -> str:
    values = [value for key, value in context.invocation_metadata() or () if key == AUTHORIZATION]
    scheme, _, secret = str(values[0]).partition(" ") if values else ("", "", "")
    if scheme.lower() != _SCHEME or not secret:
        raise NotAuthenticated(
            "the master wants to know who you are, and no token came with the call",
            hint="set EVA_TOKEN, or EVA_CONFIG to a settings file with a token; "
            "operators make tokens with `eva token create`",
        )
    return secret.strip()
