"""The call of a command in a task, or of a forwarded connection."""

from __future__ import annotations

from collections.abc import Iterator

import grpc

from eva_client.rpc import faults
from eva_wire._proto import attach_pb2 as pb
from eva_wire._proto.api_pb2_grpc import JobsStub


def frames(jobs: JobsStub, inputs: Iterator[pb.Input], address: str) -> Iterator[pb.Output]:
    """Exchange frames with a running task; see attach.proto. The call is never repeated.

    Args:
        jobs: Makes the call.
        inputs: Frames to send, which are taken in a thread of their own.
        address: The master's address, for messages.

    Raises:
        AttachRefused: The task does not let the caller in.
        NotRunning: The task does not run.
        Unreachable: The master does not answer, or the connection broke.
    """
    call, begun = jobs.Attach(inputs), False
    try:
        for frame in call:
            begun = True
            yield frame
    except grpc.RpcError as failure:
        failed = faults.broke_off if begun else faults.translated
        raise failed(failure, address) from failure
    finally:
        call.cancel()
