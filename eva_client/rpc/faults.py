"""Translates failed calls to errors for the user."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import grpc

from eva_wire.rpc.errors import DETAIL_KEY, error_of
from eva_wire.values.errors import (
    EvaError,
    NotAuthenticated,
    NotAuthorised,
    NotFound,
    Unreachable,
    Untrusted,
)

_BY_THE_CLOCK = {
    "certificate is not yet valid": "is not valid yet",
    "certificate has expired": "has expired",
}
"""OpenSSL's messages on certificates at a wrong time, and their meanings."""


def translated(failure: grpc.RpcError, address: str) -> EvaError:
    """Translate a failed call to the error that the master raised, or to a connection error.

    Args:
        failure: The error of the stub.
        address: The master's address, for the message.
    """
    # A stub's error is also a call, which its type does not declare.
    call: Any = failure
    metadata = call.trailing_metadata() or ()
    if any(key == DETAIL_KEY for key, _ in metadata):
        return error_of(call.code(), call.details() or "", metadata)
    match call.code():
        case grpc.StatusCode.UNAVAILABLE:
            return _unavailable(call.details() or "", address)
        case grpc.StatusCode.DEADLINE_EXCEEDED | grpc.StatusCode.CANCELLED:
            return Unreachable(
                f"the master at {address} did not answer in time",
                hint="it may be busy: try again, or look at its log",
            )
        case grpc.StatusCode.UNIMPLEMENTED:
            return EvaError(
                f"the master at {address} does not know this request",
                hint="it is of another release: use the same release for both",
            )
        case grpc.StatusCode.UNAUTHENTICATED:
            return NotAuthenticated(call.details() or "the master does not know who you are")
        case grpc.StatusCode.PERMISSION_DENIED:
            return NotAuthorised(call.details() or "the master refuses")
        case grpc.StatusCode.NOT_FOUND:
            return NotFound(call.details() or "the named thing does not exist")
        case code:
            return EvaError(f"the master failed: {call.details() or code}", hint="see its log")


def broke_off(failure: grpc.RpcError, address: str) -> EvaError:
    """Translate the failure of a call that was under way.

    Args:
        failure: The error of the stub.
        address: The master's address, for the message.
    """
    call: Any = failure
    said = any(key == DETAIL_KEY for key, _ in call.trailing_metadata() or ())
    if not said and call.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        return Unreachable(
            f"the connection to the master at {address} broke, and what ran in the task has ended",
            hint="the master may be restarting: try again in a moment",
        )
    return translated(failure, address)


def _unavailable(details: str, address: str) -> EvaError:
    """Find the cause of a failed connection in the messages of OpenSSL and gRPC."""
    for words, when in _BY_THE_CLOCK.items():
        if words in details:
            now = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC"
            return Untrusted(
                f"the certificate of the master at {address} {when} by this machine's clock"
                f" ({now}): this clock or the master's is probably wrong",
                hint="compare `date -u` on both machines, and have both follow a time server",
            )
    if "CERTIFICATE_VERIFY_FAILED" in details or "Hostname Verification" in details:
        return Untrusted(
            f"the server at {address} is not the master that your certificate belongs to",
            hint="check that `ca_file` is this cluster's ca.pem, and the address its master's",
        )
    if "WRONG_VERSION_NUMBER" in details:
        return Untrusted(
            f"the server at {address} does not speak TLS, as every master does",
            hint="check that the address is the master's: another program may use this port",
        )
    if "failed to connect" in details and "Socket closed" in details:
        return Unreachable(
            f"the server at {address} closes the connection at once",
            hint="the port may be the one for workers; users have another, 7411 by default",
        )
    return Unreachable(
        f"no master answers at {address}",
        hint="start one with `eva up`, or name its address with --address or EVA_ADDRESS",
    )
