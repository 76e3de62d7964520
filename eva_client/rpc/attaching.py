"""The call of a command in a task, or of a forwarded connection."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import grpc

from eva_client.rpc import faults
from eva_wire._proto import attach_pb2 as pb
from eva_wire._proto.api_pb2_grpc import JobsStub

_ANSWER_S = 120.0
"""Longest time to the first frame, which says that the task lets the caller in. Master and agent
take 40 s at most, and a container engine some more."""


def frames(
    jobs: JobsStub, inputs: Iterator[pb.Input], address: str, answer_s: float = _ANSWER_S
) -> Iterator[pb.Output]:
    """Exchange frames with a running task; see attach.proto. The call is never repeated.

    Args:
        jobs: Makes the call.
        inputs: Frames to send, which are taken in a thread of their own.
        address: The master's address, for messages.
        answer_s: Longest time to the first frame.

    Raises:
        AttachRefused: The task does not let the caller in.
        NotRunning: The task does not run.
        Unreachable: The master does not answer, or the connection broke.
    """
    call, begun = jobs.Attach(inputs), False
    silent = threading.Timer(answer_s, call.cancel)
    silent.daemon = True
    silent.start()
    try:
        for frame in call:
            begun = True
            silent.cancel()
            yield frame
    except grpc.RpcError as failure:
        failed = faults.broke_off if begun else faults.translated
        raise failed(failure, address) from failure
    finally:
        silent.cancel()
        call.cancel()
