"""Why a call failed, in words for the user who made it."""

from __future__ import annotations

from typing import Any

import grpc

from eva_master.adapters.rpc.errors import DETAIL_KEY, error_of
from eva_master.model.errors import (
    EvaError,
    NotAuthenticated,
    NotAuthorised,
    NotFound,
    Unreachable,
    Untrusted,
)


def translated(failure: grpc.RpcError, address: str) -> EvaError:
    """Turn a failed call into the error that the master raised, or into what gRPC met.

    Args:
        failure: As a stub raises it.
        address: Whom the call was for, for the message.
    """
    # A stub's error is a call as well, which the type of the exception does not say.
    call: Any = failure
    metadata = call.trailing_metadata() or ()
    if any(key == DETAIL_KEY for key, _ in metadata):
        return error_of(call.code(), call.details() or "", metadata)
    match call.code():
        case grpc.StatusCode.UNAVAILABLE:
            return _unavailable(call.details() or "", address)
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return Unreachable(
                f"the master at {address} did not answer in time",
                hint="it may be busy: try again, or look at its log",
            )
        case grpc.StatusCode.UNIMPLEMENTED:
            return EvaError(
                f"the master at {address} does not know this request",
                hint="it is of another release: use the same one here and there",
            )
        case grpc.StatusCode.UNAUTHENTICATED:
            return NotAuthenticated(call.details() or "the master does not know who you are")
        case grpc.StatusCode.PERMISSION_DENIED:
            return NotAuthorised(call.details() or "the master refuses")
        case grpc.StatusCode.NOT_FOUND:
            return NotFound(call.details() or "there is no such thing")
        case code:
            return EvaError(f"the master failed: {call.details() or code}", hint="see its log")


def _unavailable(details: str, address: str) -> EvaError:
    """Why there is no connection, in the only words of it that there are: OpenSSL's and gRPC's."""
    if "CERTIFICATE_VERIFY_FAILED" in details or "Hostname Verification" in details:
        return Untrusted(
            f"whoever answers at {address} is not the master that your certificate is of",
            hint="see that `ca_file` is the ca.pem of this cluster, and the address its master's",
        )
    if "WRONG_VERSION_NUMBER" in details:
        return Untrusted(
            f"whoever answers at {address} does not speak TLS, which every master does",
            hint="see that the address is the master's: another program may have this port",
        )
    if "failed to connect" in details and "Socket closed" in details:
        return Unreachable(
            f"whoever listens at {address} hangs up at once",
            hint="the port may be the one for workers; users have another, 7411 by default",
        )
    return Unreachable(
        f"no master answers at {address}",
        hint="start one with `eva up`, or say where it is with --address or EVA_ADDRESS",
    )
