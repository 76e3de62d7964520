"""Limits callers without a token: small messages, soon, and few of them from each address.

A caller that has said nothing holds nothing that another caller needs: its message is read first,
and the oldest silent call of its address makes room for the next.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from eva_master.adapters.rpc.handlers import Context, Handler, wrapped
from eva_master.adapters.rpc.server.admission.places import AddressPlaces, address_of
from eva_wire.rpc.errors import BadRequest
from eva_wire.values.errors import Busy

MOST_BYTES = 64 * 1024
"""Size of the largest message of a caller without a token."""
_UNREAD_AT_ONCE = 512
_UNREAD_PER_ADDRESS = 64
"""Calls whose message has not arrived."""
_STREAMS_AT_ONCE = 32
_STREAMS_PER_ADDRESS = 8
_ARRIVES_WITHIN_S = 3.0
"""A stranger's message takes so long at most from the beginning of its call."""
_SILENT_S = 60.0
"""A stranger's stream is silent for so long at most, and takes so long to read an answer."""
_REQUEST_WITHIN_S = 30.0
"""The request of a user, who may have a slow line, takes so long at most."""


async def only(context: Context, within_s: float | None = None) -> Any:
    """The only request of a call that is read as a stream.

    The message is read from the context: an iterator that is left in the middle lasts as long as
    the call.

    Args:
        context: The call's.
        within_s: How long it may take to arrive; by default as long as a user's may.

    Raises:
        BadRequest: There is none.
        Busy: The message takes too long to arrive.
    """
    try:
        async with asyncio.timeout(_REQUEST_WITHIN_S if within_s is None else within_s):
            request: object = await context.read()
    except TimeoutError:
        raise _too_slow() from None
    return _present(request)


class Strangers:
    """Serves callers without a token. Only the asyncio thread uses it.

    Attributes:
        unread: Held by calls whose first message has not arrived.
        streams: Held by calls that last.
    """

    def __init__(self) -> None:
        self.unread = AddressPlaces(_UNREAD_AT_ONCE, _UNREAD_PER_ADDRESS, first_come=False)
        self.streams = AddressPlaces(_STREAMS_AT_ONCE, _STREAMS_PER_ADDRESS, first_come=True)

    def wrapped(self, handler: grpc.RpcMethodHandler[Any, Any]) -> grpc.RpcMethodHandler[Any, Any]:
        """A handler that takes small requests, and serves few streams at a time."""

        def wrap(behaviour: Handler) -> Handler:
            if handler.response_streaming:
                return self._stream(behaviour, whole=handler.request_streaming)
            return self._call(behaviour)

        return wrapped(handler, wrap, request_streaming=True, deserializer=_limited(handler))

    def _call(self, behaviour: Handler) -> Handler:
        async def coroutine(_: Any, context: Context) -> Any:
            request = await self._first(context)
            answer = behaviour(request, context)
            return await answer if inspect.isawaitable(answer) else answer

        return coroutine

    def _stream(self, behaviour: Handler, *, whole: bool) -> Handler:
        """A stream that has a place once its first message is there."""

        async def coroutine(_: Any, context: Context) -> None:
            first = await self._first(context)
            with self._served(context) as timer:
                async with timer:
                    request = _messages(first, context) if whole else first
                    answers = behaviour(request, context)
                    if inspect.isawaitable(answers):
                        await answers
                        return
                    async for answer in answers:
                        async with asyncio.timeout(_SILENT_S):
                            await context.write(answer)

        return coroutine

    async def _first(self, context: Context) -> Any:
        """The first message of a call, which holds a place among the unread until it is there."""
        timer = asyncio.timeout(_ARRIVES_WITHIN_S)
        try:
            async with timer:
                end = self.unread.enter(address_of(context.peer()), expiry_of(timer))
                assert end is not None
                try:
                    request: object = await context.read()
                finally:
                    end()
        except TimeoutError:
            raise _too_slow() from None
        return _present(request)

    @contextmanager
    def _served(self, context: Context) -> Iterator[asyncio.Timeout]:
        """A place for a stream, and the timer that ends the stream with it.

        Raises:
            Busy: There is no place, or no longer, or nothing is said or read for too long.
        """
        timer = asyncio.timeout(None)
        end = self.streams.enter(address_of(context.peer()), expiry_of(timer))
        if end is None:
            raise Busy.until("too many streams of callers without a token", 1.0)
        try:
            yield timer
        except TimeoutError:
            raise Busy.until(
                "the stream was silent for too long, or another address had too few", 1.0
            ) from None
        finally:
            end()


def expiry_of(timer: asyncio.Timeout) -> Callable[[], None]:
    """End what a timer guards, as if its time were over."""

    def expire() -> None:
        if not timer.expired():
            timer.reschedule(asyncio.get_running_loop().time())

    return expire


async def _messages(first: Any, context: Context) -> AsyncIterator[Any]:
    """The messages of a stranger's stream, which may not be silent for long."""
    yield first
    while True:
        async with asyncio.timeout(_SILENT_S):
            message: object = await context.read()
        if message is grpc.aio.EOF:
            return
        yield message


def _present(request: object) -> Any:
    if request is grpc.aio.EOF:
        raise BadRequest("a call needs a request")
    return request


def _too_slow() -> Busy:
    return Busy.until("the request took too long to arrive", 1.0)


def _limited(handler: grpc.RpcMethodHandler[Any, Any]) -> Any:
    decode = handler.request_deserializer

    def limited(data: bytes) -> Any:
        if len(data) > MOST_BYTES:
            raise BadRequest(f"the request is larger than {MOST_BYTES:,} bytes")
        return data if decode is None else decode(data)

    return limited
