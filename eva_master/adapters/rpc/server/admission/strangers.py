"""Limits callers without a token: small messages, few calls at a time, few lines in the log."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from typing import Any

import grpc

from eva_master.adapters.rpc.errors import BadRequest
from eva_master.adapters.rpc.handlers import Context, Handler, wrapped
from eva_master.model.errors import Busy

MOST_BYTES = 64 * 1024
"""Size of the largest message of a caller without a token."""
_CALLS_AT_ONCE = 16
_STREAMS_AT_ONCE = 32
_LINE = 2_000
_ARRIVES_WITHIN_S = 30.0
"""A request takes so long at most from the beginning of a call."""


async def only(context: Context) -> Any:
    """The only request of a call that is read as a stream.

    It is read from the context: an iterator that is left in the middle lasts as long as the call.

    Raises:
        BadRequest: There is none.
        Busy: It takes too long to arrive.
    """
    try:
        async with asyncio.timeout(_ARRIVES_WITHIN_S):
            request: object = await context.read()
    except TimeoutError:
        raise Busy.until("the request took too long to arrive", 1.0) from None
    if request is grpc.aio.EOF:
        raise BadRequest("a call needs a request")
    return request


class Strangers:
    """Serves callers without a token. Only the asyncio thread uses it."""

    def __init__(self) -> None:
        self._calls = asyncio.Semaphore(_CALLS_AT_ONCE)
        self._in_line = 0
        self._streams = 0

    def wrapped(self, handler: grpc.RpcMethodHandler[Any, Any]) -> grpc.RpcMethodHandler[Any, Any]:
        """A handler that takes small requests, and not too many at a time."""
        if handler.response_streaming:
            return wrapped(
                handler,
                lambda behaviour: self._stream(behaviour, whole=handler.request_streaming),
                request_streaming=True,
                deserializer=_limited(handler),
            )
        return wrapped(handler, self._call, request_streaming=True, deserializer=_limited(handler))

    def _call(self, behaviour: Handler) -> Handler:
        async def coroutine(_: Any, context: Context) -> Any:
            if self._in_line >= _LINE:
                raise Busy.until("too many callers wait to be let in", 1.0)
            self._in_line += 1
            try:
                await self._calls.acquire()
            finally:
                self._in_line -= 1
            try:
                request = await only(context)
                found = behaviour(request, context)
                return await found if inspect.isawaitable(found) else found
            finally:
                self._calls.release()

        return coroutine

    def _stream(self, behaviour: Handler, *, whole: bool) -> Handler:
        async def generator(requests: Any, context: Context) -> AsyncIterator[Any]:
            if self._streams >= _STREAMS_AT_ONCE:
                raise Busy.until("too many streams of callers without a token", 1.0)
            self._streams += 1
            try:
                async for answer in behaviour(requests if whole else await only(context), context):
                    yield answer
            finally:
                self._streams -= 1

        async def coroutine(requests: Any, context: Context) -> None:
            if self._streams >= _STREAMS_AT_ONCE:
                raise Busy.until("too many streams of callers without a token", 1.0)
            self._streams += 1
            try:
                await behaviour(requests if whole else await only(context), context)
            finally:
                self._streams -= 1

        return generator if inspect.isasyncgenfunction(behaviour) else coroutine


def _limited(handler: grpc.RpcMethodHandler[Any, Any]) -> Any:
    decode = handler.request_deserializer

    def limited(data: bytes) -> Any:
        if len(data) > MOST_BYTES:
            raise BadRequest(f"the request is larger than {MOST_BYTES:,} bytes")
        return data if decode is None else decode(data)

    return limited
