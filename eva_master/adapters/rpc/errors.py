"""Errors across the wire: a gRPC status for programs, an `ErrorDetail` for people."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

import grpc
import structlog

from eva_master.adapters.rpc._proto import api_pb2 as pb
from eva_master.model import errors
from eva_master.model.errors import EvaError, Problem

DETAIL_KEY = "eva-error-bin"
"""Trailing metadata that carries a serialised `ErrorDetail`."""
HINT_KEY = "eva-hint-bin"
"""The same metadata for peers that show an error and know nothing of its class: what to do."""
_PUSHBACK_KEY = "grpc-retry-pushback-ms"
"""Tells a gRPC client when to repeat a call by itself, and by a negative number not to."""

# gRPC refuses trailing metadata above 8 KiB, and the whole answer with it. The status's own text
# is percent-encoded, up to nine bytes a character.
_DETAIL_BYTES = 5000
_TEXT_CHARACTERS = 500
_STATUS_CHARACTERS = 200


class BadRequest(EvaError):
    """A peer said something that no correct peer says."""


class SessionReplaced(EvaError):
    """The same worker has opened a newer session."""


class TooSlow(EvaError):
    """A peer does not read what is sent to it."""


_STATUS: dict[type[EvaError], grpc.StatusCode] = {
    errors.DuplicateName: grpc.StatusCode.ALREADY_EXISTS,
    errors.Unplaceable: grpc.StatusCode.FAILED_PRECONDITION,
    errors.InvalidJob: grpc.StatusCode.INVALID_ARGUMENT,
    errors.InvalidConfig: grpc.StatusCode.INVALID_ARGUMENT,
    BadRequest: grpc.StatusCode.INVALID_ARGUMENT,
    SessionReplaced: grpc.StatusCode.ABORTED,
    TooSlow: grpc.StatusCode.ABORTED,
    errors.InvalidKey: grpc.StatusCode.INVALID_ARGUMENT,
    errors.DigestMismatch: grpc.StatusCode.DATA_LOSS,
    # Not one that clients repeat by themselves.
    errors.StorageFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.StorageError: grpc.StatusCode.UNAVAILABLE,
    errors.NotFound: grpc.StatusCode.NOT_FOUND,
    errors.InvalidRequest: grpc.StatusCode.FAILED_PRECONDITION,
    errors.LimitExceeded: grpc.StatusCode.FAILED_PRECONDITION,
    errors.Busy: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.QuotaExceeded: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.Throttled: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.CloudDenied: grpc.StatusCode.FAILED_PRECONDITION,
    errors.CloudError: grpc.StatusCode.UNAVAILABLE,
    errors.Unreachable: grpc.StatusCode.UNAVAILABLE,
    errors.NotAuthenticated: grpc.StatusCode.UNAUTHENTICATED,
    errors.NotAuthorised: grpc.StatusCode.PERMISSION_DENIED,
    EvaError: grpc.StatusCode.INTERNAL,
}

log = structlog.get_logger(__name__)


def status_of(error: EvaError) -> grpc.StatusCode:
    """The status of an error: of its class, or of the nearest ancestor that has one."""
    return next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)


def detail_of(error: EvaError) -> pb.ErrorDetail:
    """The error as a message, cut to what gRPC lets through."""
    detail = pb.ErrorDetail(
        kind=type(error).__name__,
        message=error.message[:_TEXT_CHARACTERS],
        hint=error.hint[:_TEXT_CHARACTERS],
    )
    for index, problem in enumerate(error.problems):
        detail.problems.append(_problem_message(problem))
        if detail.ByteSize() > _DETAIL_BYTES:
            del detail.problems[-1]
            left = len(error.problems) - index
            detail.problems.append(pb.Problem(message=f"and {left} more problems"))
            break
    return detail


def error_of(
    status: grpc.StatusCode, text: str, metadata: Iterable[tuple[str, str | bytes]]
) -> EvaError:
    """The error that a peer's answer means.

    Args:
        status: The call's status.
        text: The status's own text; used when there is no detail.
        metadata: Trailing metadata.
    """
    packed = next((value for key, value in metadata if key == DETAIL_KEY), None)
    if not isinstance(packed, bytes):
        unreachable = status in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
        return errors.Unreachable(text) if unreachable else EvaError(text)
    detail = pb.ErrorDetail.FromString(packed)
    kind = _KINDS.get(detail.kind, EvaError)
    problems = tuple(map(_problem, detail.problems))
    return kind(detail.message, hint=detail.hint, problems=problems)


def _problem_message(problem: Problem) -> pb.Problem:
    return pb.Problem(
        message=problem.message[:_TEXT_CHARACTERS],
        key=problem.key[:_TEXT_CHARACTERS],
        line=problem.line,
        column=problem.column,
        hint=problem.hint[:_TEXT_CHARACTERS],
    )


def _problem(message: pb.Problem) -> Problem:
    return Problem(message.message, message.key, message.line, message.column, message.hint)


def _descendants(kind: type[EvaError]) -> Iterable[type[EvaError]]:
    yield kind
    for child in kind.__subclasses__():
        yield from _descendants(child)


_KINDS = {
    kind.__name__: kind
    for kind in _descendants(EvaError)
    # The others are made of more than a message.
    if kind.__init__ is EvaError.__init__
}

Context = grpc.aio.ServicerContext[Any, Any]
Handler = Callable[[Any, Any], Any]


class ErrorInterceptor(grpc.aio.ServerInterceptor):
    """Turns what Eva's handlers raise into a status with an `ErrorDetail`.

    An error that is no `EvaError` is a bug: it is logged with its traceback, and the caller gets
    an id to quote.
    """

    async def intercept_service(
        self,
        continuation: Callable[
            [grpc.HandlerCallDetails], Awaitable[grpc.RpcMethodHandler[Any, Any] | None]
        ],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Wrap the handlers of all services."""
        handler = await continuation(handler_call_details)
        method = handler_call_details.method
        if handler is None:
            return handler
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
        request_streaming: Whether the new function gets requests as a stream; `None` for as the
            old one does. What is on the wire is the same, but a stream is read by the function.
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


async def _abort(context: Context, error: Exception, method: str) -> None:
    if isinstance(error, grpc.aio.AbortError):
        raise error
    if not isinstance(error, EvaError):
        incident = uuid.uuid4().hex[:12]
        log.error("handler failed", method=method, incident=incident, exc_info=error)
        error = EvaError(
            f"internal error {incident}", hint="the master's log has more under this number"
        )
    retry_ms = error.retry_after_ms if isinstance(error, errors.Busy) else -1
    await context.abort(
        status_of(error),
        error.message[:_STATUS_CHARACTERS],
        (
            (DETAIL_KEY, detail_of(error).SerializeToString()),
            (HINT_KEY, error.hint[:_TEXT_CHARACTERS].encode()),
            # A master that cannot write at the moment is asked again at the client's own pace.
            *(() if _is_passing(error) else ((_PUSHBACK_KEY, str(retry_ms)),)),
        ),
    )


def _is_passing(error: EvaError) -> bool:
    """Whether the client is to repeat the call as if the master had not been reached."""
    return status_of(error) is grpc.StatusCode.UNAVAILABLE
