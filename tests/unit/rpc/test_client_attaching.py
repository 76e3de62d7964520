"""The client's end of an attachment whose master says nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc
import pytest

from eva_client.rpc.attaching import frames
from eva_wire._proto import attach_pb2 as pb
from eva_wire._proto.api_pb2_grpc import JobsServicer, JobsStub, add_JobsServicer_to_server
from eva_wire.values.errors import Unreachable

OPENING = pb.Input(open=pb.Open(job="train-1"))
LONG_S = 86_400.5


class Silent(JobsServicer):
    """A master that lets callers in, or says nothing at all.

    Args:
        lets_in: Whether it sends the first frame.
    """

    def __init__(self, *, lets_in: bool) -> None:
        self._lets_in = lets_in
        self.left = threading.Event()

    def Attach(
        self, request_iterator: Iterator[pb.Input], context: grpc.ServicerContext
    ) -> Iterator[pb.Output]:
        """Say no more than the first frame until the caller has gone."""
        next(request_iterator)
        context.add_callback(self.left.set)
        if self._lets_in:
            yield pb.Output(opened=True)
        self.left.wait()


@contextmanager
def attached(master: Silent, answer_s: float) -> Iterator[Iterator[pb.Output]]:
    """Frames of an attachment, over a real connection."""
    server = grpc.server(ThreadPoolExecutor(1))
    add_JobsServicer_to_server(master, server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield frames(JobsStub(channel), iter([OPENING]), "far:7411", answer_s)
    finally:
        master.left.set()
        server.stop(None).wait()


def test_a_master_that_does_not_answer_is_given_up() -> None:
    with (
        attached(Silent(lets_in=False), 0.2) as answers,
        pytest.raises(Unreachable, match="the master at far:7411 did not answer in time"),
    ):
        next(answers)


def timers() -> list[threading.Timer]:
    """Those that wait for a first frame."""
    return [
        thread
        for thread in threading.enumerate()
        if isinstance(thread, threading.Timer) and thread.interval == LONG_S
    ]


def test_a_task_that_let_its_caller_in_may_say_nothing_for_as_long_as_it_likes() -> None:
    with attached(Silent(lets_in=True), LONG_S) as answers:
        assert next(answers).opened
        for timer in timers():
            timer.join()  # It has been called off, and would wait for a day.
        answers.close()  # type: ignore[attr-defined]
