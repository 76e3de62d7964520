"""Frames of the user's end of a command: sizes of the terminal among the keys."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

import pytest

from eva_client.attach import executing
from eva_client.attach.executing import Inputs, Terminal
from eva_wire._proto import attach_pb2 as pb

USUAL = pb.Size(rows=24, columns=80)
SMALL = pb.Size(rows=12, columns=40)


class SizedTerminal(Terminal):
    """A terminal of a size that a test sets."""

    def __init__(self) -> None:
        self.now = USUAL

    def size(self) -> pb.Size:
        return self.now


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Where a test types what comes as standard input."""
    read, write = os.pipe()
    monkeypatch.setattr(executing, "_INPUT", read)
    yield write
    os.close(read)
    os.close(write)


def test_keys_typed_after_a_new_size_come_after_it(keys: int) -> None:
    """The signal of the new size is on its way still."""
    terminal = SizedTerminal()
    frames = iter(Inputs(pb.Input(), terminal, USUAL))
    assert next(frames) == pb.Input()
    os.write(keys, b"a")
    assert next(frames) == pb.Input(data=b"a")
    terminal.now = SMALL
    os.write(keys, b"b")
    assert next(frames) == pb.Input(resize=SMALL)
    assert next(frames) == pb.Input(data=b"b")


def test_a_signal_of_a_size_that_was_told_says_nothing_again(keys: int) -> None:
    terminal = SizedTerminal()
    inputs = Inputs(pb.Input(), terminal, USUAL)
    frames = iter(inputs)
    assert next(frames) == pb.Input()
    terminal.now = SMALL
    inputs.resized(signal.SIGWINCH, None)
    assert next(frames) == pb.Input(resize=SMALL)
    inputs.resized(signal.SIGWINCH, None)
    os.write(keys, b"c")
    assert next(frames) == pb.Input(data=b"c")
