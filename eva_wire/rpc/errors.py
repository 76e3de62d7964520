"""Errors across the wire: a gRPC status for programs, an `ErrorDetail` for people."""

from __future__ import annotations

from collections.abc import Iterable

import grpc

from eva_wire._proto import api_pb2 as pb
from eva_wire.values import errors
from eva_wire.values.errors import EvaError, Problem

DETAIL_KEY = "eva-error-bin"
"""Trailing metadata that carries a serialised `ErrorDetail`."""
HINT_KEY = "eva-hint-bin"
"""The hint alone, for peers that show an error without knowing its class."""
PUSHBACK_KEY = "grpc-retry-pushback-ms"
"""Tells a gRPC client when to repeat a call by itself, and by a negative number not to."""

# gRPC refuses trailing metadata above 8 KiB, and the whole answer with it. The status's own text
# is percent-encoded, up to nine bytes a character.
_DETAIL_BYTES = 5000
TEXT_CHARACTERS = 500
STATUS_CHARACTERS = 200


class BadRequest(EvaError):
    """A peer said something that no correct peer says."""


class SessionReplaced(EvaError):
    """The worker has opened a newer session."""


class AlreadyConnected(EvaError):
    """Another process has the session of the same worker, and is heard of."""


class TooSlow(EvaError):
    """A peer does not read what is sent to it."""


_STATUS: dict[type[EvaError], grpc.StatusCode] = {
    errors.DuplicateName: grpc.StatusCode.ALREADY_EXISTS,
    errors.Unplaceable: grpc.StatusCode.FAILED_PRECONDITION,
    errors.InvalidJob: grpc.StatusCode.INVALID_ARGUMENT,
    errors.InvalidConfig: grpc.StatusCode.INVALID_ARGUMENT,
    BadRequest: grpc.StatusCode.INVALID_ARGUMENT,
    SessionReplaced: grpc.StatusCode.ABORTED,
    AlreadyConnected: grpc.StatusCode.ALREADY_EXISTS,
    TooSlow: grpc.StatusCode.ABORTED,
    errors.InvalidKey: grpc.StatusCode.INVALID_ARGUMENT,
    errors.DigestMismatch: grpc.StatusCode.DATA_LOSS,
    # Not one that clients repeat by themselves.
    errors.StorageFull: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.StorageError: grpc.StatusCode.UNAVAILABLE,
    errors.NotFound: grpc.StatusCode.NOT_FOUND,
    errors.NoticeNotSent: grpc.StatusCode.FAILED_PRECONDITION,
    errors.UnreadableSecret: grpc.StatusCode.FAILED_PRECONDITION,
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


def status_of(error: EvaError) -> grpc.StatusCode:
    """The status of an error: of its class, or of the nearest ancestor that has one."""
    return next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)


def detail_of(error: EvaError) -> pb.ErrorDetail:
    """The error as a message, cut to what gRPC lets through."""
    detail = pb.ErrorDetail(
        kind=type(error).__name__,
        message=error.message[:TEXT_CHARACTERS],
        hint=error.hint[:TEXT_CHARACTERS],
    )
    for index, problem in enumerate(error.problems):
        detail.problems.append(_problem_message(problem))
        if detail.ByteSize() > _DETAIL_BYTES:
            del detail.problems[-1]
            more = len(error.problems) - index
            detail.problems.append(pb.Problem(message=f"and {more} more problems"))
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
        message=problem.message[:TEXT_CHARACTERS],
        key=problem.key[:TEXT_CHARACTERS],
        line=problem.line,
        column=problem.column,
        hint=problem.hint[:TEXT_CHARACTERS],
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


def is_passing(error: EvaError) -> bool:
    """Whether the client is to repeat the call as if the master had not been reached."""
    return status_of(error) is grpc.StatusCode.UNAVAILABLE
