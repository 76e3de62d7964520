"""Wrappers of a server's handlers: errors become answers."""

from __future__ import annotations

import asyncio
import inspect
import uuid
from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import grpc
import structlog

from eva_wire.rpc.errors import (
    DETAIL_KEY,
    HINT_KEY,
    PUSHBACK_KEY,
    STATUS_CHARACTERS,
    TEXT_CHARACTERS,
    detail_of,
    is_passing,
    status_of,
)
from eva_wire.values.errors import Busy, EvaError

log = structlog.get_logger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]
Handler = Callable[[Any, Any], Any]
T = TypeVar("T")

_REPEATED_KEY = "grpc-previous-rpc-attempts"
"""Metadata of a call that gRPC repeats, since it does not know what became of the first one."""
_unfinished: set[asyncio.Task[Any]] = set()
"""Work that goes on without its call; asyncio itself would forget it."""


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Await the steps of a command, which go on though its call is cancelled meanwhile."""
    task = asyncio.create_task(work)
    _unfinished.add(task)
    task.add_done_callback(_unfinished.discard)
    return await asyncio.shield(task)


def repeated(context: Context) -> bool:
    """Whether the same call may have been carried out before."""
    return any(key == _REPEATED_KEY for key, _ in context.invocation_metadata() or ())


class HandlerInterceptor(grpc.aio.ServerInterceptor):
    """Wraps the handlers of all services."""

    async def intercept_service(
        self,
        continuation: Callable[
            [grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]
        ],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Wrap the handler of a call, if there is one."""
        handler = await continuation(handler_call_details)
        return None if handler is None else self.wrap(handler, handler_call_details.method)

    @abstractmethod
    def wrap(
        self, handler: grpc.RpcMethodHandler[Any, Any], method: str
    ) -> grpc.RpcMethodHandler[Any, Any]:
        """Wrap a handler.

        Args:
            handler: The handler.
            method: Full name of the method, such as ``/eva.v1.Jobs/Submit``.
        """


class ErrorInterceptor(HandlerInterceptor):
    """Turns what Eva's handlers raise into a status with an `ErrorDetail`.

    An error that is no `EvaError` is a bug: it is logged with its traceback, and the caller gets
    an id to quote.
    """

    def wrap(
        self, handler: grpc.RpcMethodHandler[Any, Any], method: str
    ) -> grpc.RpcMethodHandler[Any, Any]:
        """Turn errors of a handler into a status."""
        return wrapped(handler, lambda behaviour: _guarded(behaviour, method))


def wrapped(
    handler: grpc.RpcMethodHandler[Any, Any],
    wrap: Callable[[Handler], Handler],
    *,
    request_streaming: bool | None = None,
    deserializer: Callable[[bytes], Any] | None = None,
    serializer: Callable[[Any], bytes] | None = None,
) -> grpc.RpcMethodHandler[Any, Any]:
    """A handler whose function is `wrap` of the old one.

    Args:
        handler: The old one.
        wrap: Makes the new function of the old one.
        request_streaming: Whether the new function gets requests as a stream; `None` keeps the old
            form. The wire format does not change, but the function reads a stream itself.
        deserializer: Instead of the old one's.
        serializer: Instead of the old one's.
    """
    streaming = handler.request_streaming if request_streaming is None else request_streaming
    behaviour = (
        handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
    )
    make: Callable[..., grpc.RpcMethodHandler[Any, Any]]
    match streaming, handler.response_streaming:
        case False, False:
            make = grpc.unary_unary_rpc_method_handler
        case False, True:
            make = grpc.unary_stream_rpc_method_handler
        case True, False:
            make = grpc.stream_unary_rpc_method_handler
        case _:
            make = grpc.stream_stream_rpc_method_handler
    assert behaviour is not None
    return make(
        wrap(behaviour),
        deserializer or handler.request_deserializer,
        serializer or handler.response_serializer,
    )


def _guarded(behaviour: Handler, method: str) -> Handler:
    # gRPC tells generators from coroutines by looking at the function itself.
    async def generator(request: Any, context: Context) -> AsyncIterator[Any]:
        try:
            async for response in behaviour(request, context):
                yield response
        except Exception as error:
            await _abort(context, error, method)

    async def coroutine(request: Any, context: Context) -> Any:
        try:
            return await behaviour(request, context)
        except Exception as error:
            return await _abort(context, error, method)

    return generator if inspect.isasyncgenfunction(behaviour) else coroutine


def told_error(error: Exception, method: str) -> EvaError:
    """The error that a caller is told: that of a handler, or the number of an incident.

    Args:
        error: Raised by a handler.
        method: The method or the page, for the log.
    """
    if isinstance(error, EvaError):
        return error
    incident = uuid.uuid4().hex[:12]
    log.error("handler failed", method=method, incident=incident, exc_info=error)
    return EvaError(
        f"internal error {incident}", hint="the master's log has more under this number"
    )


async def _abort(context: Context, error: Exception, method: str) -> None:
    if isinstance(error, grpc.aio.AbortError):
        raise error
    error = told_error(error, method)
    retry_ms = error.retry_after_ms if isinstance(error, Busy) else -1
    await context.abort(
        status_of(error),
        error.message[:STATUS_CHARACTERS],
        (
            (DETAIL_KEY, detail_of(error).SerializeToString()),
            (HINT_KEY, error.hint[:TEXT_CHARACTERS].encode()),
            # A master that cannot write at the moment is asked again at the client's own pace.
            *(() if is_passing(error) else ((PUSHBACK_KEY, str(retry_ms)),)),
        ),
    )
