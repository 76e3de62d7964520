"""Calls of the users' port that the master makes itself, for users of its pages.

A call passes what a call over the network passes: the table of roles, the pace of its user, the
bounds of its request, and the handler's own checks.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from typing import Any, Protocol, TypeVar

from google.protobuf.message import Message

from eva_master.adapters.rpc.server.access import AccessInterceptor
from eva_master.adapters.rpc.server.admission.requests import checked
from eva_master.adapters.store import UserTokens
from eva_wire.rpc.methods import METHODS, CallLine
from eva_wire.values.errors import NotAuthorised

T = TypeVar("T")

_PEER = "pages"


class Calls(Protocol):
    """Calls on behalf of tokens, from any event loop."""

    async def call(self, token: str, method: str, request: Message) -> Any:
        """Call a method that answers once.

        Args:
            token: Id of the token on whose behalf it is called.
            method: Full name, such as ``/eva.api.v1.Jobs/Get``.
            request: The request.

        Raises:
            EvaError: The call is refused, or fails.
        """
        ...

    def stream(self, token: str, method: str, request: Message) -> AsyncGenerator[Any, None]:
        """Call a method that answers with a stream; it ends with its token. See `call`."""
        ...

    async def begin(self, token: str) -> Callable[[], None]:
        """Count a stream of a page among those of its user.

        Returns:
            A function that ends it.

        Raises:
            EvaError: The user has too many, or the token has ended.
        """
        ...


class LocalCalls:
    """Calls handlers in the event loop in which they live; made in that loop's thread.

    Args:
        access: Decides who may call which method.
        tokens: The tokens of this cluster.
        services: The handlers, by the name of their service: ``Jobs``.
    """

    def __init__(
        self, access: AccessInterceptor, tokens: UserTokens, services: Mapping[str, object]
    ) -> None:
        self._access = access
        self._tokens = tokens
        self._services = services
        self._loop = asyncio.get_running_loop()

    async def call(self, token: str, method: str, request: Message) -> Any:
        """See `Calls.call`."""
        return await self._there(self._called(token, method, request))

    async def stream(self, token: str, method: str, request: Message) -> AsyncGenerator[Any, None]:
        """See `Calls.stream`."""
        end = await self._there(self._begun(token, method))
        try:
            answers = self._handler(method)(checked(request), None)
            try:
                while True:
                    answer = await self._there(self._next(token, method, answers))
                    if answer is None:
                        return
                    yield answer
            finally:
                await self._there(self._closed(answers))
        finally:
            self._loop.call_soon_threadsafe(end)

    async def begin(self, token: str) -> Callable[[], None]:
        """See `Calls.begin`."""
        end = await self._there(self._counted(token))

        def ended() -> None:
            self._loop.call_soon_threadsafe(end)

        return ended

    async def _counted(self, token: str) -> Callable[[], None]:
        owner = self._tokens.check(token).owner
        return await self._access.pacing.begin(owner, CallLine.STREAMS)

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        if asyncio.get_running_loop() is self._loop:
            return await asyncio.create_task(work)
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _called(self, token: str, method: str, request: Message) -> Any:
        end = await self._begun(token, method)
        try:
            return await self._handler(method)(checked(request), None)
        finally:
            end()

    async def _begun(self, token: str, method: str) -> Any:
        self._permit(token, method)
        owner = self._tokens.check(token).owner
        return await self._access.pacing.begin(owner, METHODS[method].line)

    async def _next(self, token: str, method: str, answers: AsyncGenerator[Any, None]) -> Any:
        # Each step is a task, with a context of its own.
        self._permit(token, method)
        return await anext(answers, None)

    async def _closed(self, answers: AsyncGenerator[Any, None]) -> None:
        await answers.aclose()

    def _permit(self, token: str, method: str) -> None:
        self._access.permit(self._tokens.check(token), method, _PEER)

    def _handler(self, method: str) -> Any:
        service, _, name = method.rpartition(".")[2].partition("/")
        if service not in self._services:
            raise NotAuthorised(f"pages do not call {service}.{name}")
        return getattr(self._services[service], name)
