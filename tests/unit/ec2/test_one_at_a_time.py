"""The stand-in for AWS asks moto one request at a time, whoever waits."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from tests.fakes.aws.one_at_a_time import OneAtATime
from tests.fakes.patience import DEADLINE_S


def _ask(moto: OneAtATime, body: bytes = b"") -> list[bytes]:
    environ: dict[str, Any] = {"wsgi.input": io.BytesIO(body), "CONTENT_LENGTH": str(len(body))}
    return moto(environ, lambda *head: None)


def test_an_answer_is_whole_before_the_next_request_is_looked_at() -> None:
    inside, most = 0, 0
    turn = threading.Event()

    def application(environ: dict[str, Any], start: object) -> Iterator[bytes]:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        for part in (b"one", b"two"):
            # Lets all other threads run.
            turn.wait(1e-4)
            yield part
        inside -= 1

    moto = OneAtATime(application)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: _ask(moto), range(64)))
    assert answers == [[b"one", b"two"]] * 64
    assert most == 1


def test_a_slow_sender_holds_up_no_other() -> None:
    asked, answered = threading.Event(), threading.Event()

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            asked.set()
            assert answered.wait(DEADLINE_S)
            return super().read(size)

    moto = OneAtATime(lambda environ, start: [environ["wsgi.input"].read()])
    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(moto, {"wsgi.input": Slow(b"abc"), "CONTENT_LENGTH": "3"}, print)
        assert asked.wait(DEADLINE_S)
        assert _ask(moto, b"fast") == [b"fast"]
        answered.set()
        assert slow.result() == [b"abc"]


def test_an_answer_is_closed_once_it_is_read() -> None:
    closed = []

    class Answer(list[bytes]):
        def close(self) -> None:
            closed.append(len(self))

    assert _ask(OneAtATime(lambda environ, start: Answer([b"x"]))) == [b"x"]
    assert closed == [1]
