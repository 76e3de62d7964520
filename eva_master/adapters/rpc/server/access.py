"""Who may call what on the users' port.

A caller proves their identity with ``authorization: Bearer SECRET``; the token names the owner of
what they submit, and its role what they may call. A method that is not in the table `METHODS` is
refused.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import grpc
import structlog

from eva_master.adapters.rpc.errors import Context, Handler, wrapped
from eva_master.adapters.rpc.methods import METHODS
from eva_master.adapters.store import UserTokens
from eva_master.model.errors import NotAuthenticated, NotAuthorised
from eva_master.model.users import Role, UserToken

AUTHORIZATION = "authorization"
_SCHEME = "bearer"

log = structlog.get_logger(__name__)

_CALLER: ContextVar[UserToken] = ContextVar("caller")


def caller() -> UserToken:
    """Whose call is being handled; only within a handler behind an `AccessInterceptor`."""
    return _CALLER.get()


def require_owner(owner: str, what: str) -> None:
    """Check that the caller owns something or is an operator.

    Args:
        owner: Whose it is.
        what: It is, for the message.

    Raises:
        NotAuthorised: It is somebody else's.
    """
    who = caller()
    if who.owner == owner or who.role is Role.OPERATOR:
        return
    log.warning("refused", token=who.id, owner=who.owner, role=who.role.value, what=what, of=owner)
    raise NotAuthorised(
        f"{what} belongs to {owner}; you are {who.owner}, with role {who.role}",
        hint=f"ask {owner} or an operator to do it",
    )


class AccessInterceptor(grpc.aio.ServerInterceptor):
    """Lets a call through if its token is in force and of a sufficient role.

    It follows an `ErrorInterceptor`, which tells the caller why a call was refused. A stream ends
    with its token: each answer is preceded by a look at it.

    Args:
        tokens: The tokens of this cluster.
    """

    def __init__(self, tokens: UserTokens) -> None:
        self._tokens = tokens

    async def intercept_service(
        self,
        continuation: Callable[
            [grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]
        ],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Wrap the handlers of Eva's services; health and reflection are for everybody."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None or not method.startswith("/eva."):
            return handler
        row = METHODS.get(method)
        if row is not None and row.role is None:
            return handler
        return wrapped(handler, lambda behaviour: self._guarded(behaviour, method))

    def _guarded(self, behaviour: Handler, method: str) -> Handler:
        async def generator(request: Any, context: Context) -> AsyncIterator[Any]:
            token = self._admit(context, method)
            async for response in behaviour(request, context):
                self._tokens.check(token.id)
                yield response

        async def coroutine(request: Any, context: Context) -> Any:
            self._admit(context, method)
            return await behaviour(request, context)

        return generator if inspect.isasyncgenfunction(behaviour) else coroutine

    def _admit(self, context: Context, method: str) -> UserToken:
        try:
            token = self._tokens.authenticate(_secret(context))
        except NotAuthenticated as error:
            log.warning("refused", method=method, peer=context.peer(), reason=error.message)
            raise
        row = METHODS.get(method)
        needed = None if row is None else row.role
        if needed is None or not token.role.covers(needed):
            log.warning(
                "refused",
                method=method,
                peer=context.peer(),
                token=token.id,
                owner=token.owner,
                role=token.role.value,
            )
            name = method.rpartition(".")[2].replace("/", ".")
            raise NotAuthorised(
                f"{name} needs role {needed or 'none that there is'}; "
                f"you are {token.owner}, with role {token.role}",
                hint="ask an operator for a token of that role, or to do it for you",
            )
        # Each call is a task of its own, with a context of its own.
        _CALLER.set(token)
        return token


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
