"""Connections are bounded in number, and in the time for which they may do nothing."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import dataclass, field

import pytest

from eva_master.adapters.pages import connections
from eva_master.adapters.pages.connections import BoundedListener, end_idle


def accepted(listener: BoundedListener) -> socket.socket | None:
    with contextlib.suppress(BlockingIOError):
        return listener.accept()[0]
    return None


def test_connections_beyond_the_bounds_are_closed_until_others_end() -> None:
    listener = BoundedListener(socket.AF_INET)
    listener.most, listener.most_per_host = 4, 2
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    with listener, contextlib.ExitStack() as stack:
        kept = []
        for source in (
            "127.0.0.1",
            "127.0.0.1",
            "127.0.0.1",
            "127.0.0.2",
            "127.0.0.3",
            "127.0.0.4",
        ):
            dialled = stack.enter_context(socket.socket())
            dialled.bind((source, 0))
            dialled.connect(listener.getsockname())
            kept.append(accepted(listener))
        assert [connection is not None for connection in kept] == [
            True,
            True,
            False,
            True,
            True,
            False,
        ]
        assert kept[3] is not None
        kept[3].close()
        again = stack.enter_context(socket.create_connection(listener.getsockname()))
        assert accepted(listener) is None, "one address has two already"
        again.close()
        assert kept[0] is not None
        kept[0].close()
        stack.enter_context(socket.create_connection(listener.getsockname()))
        last = accepted(listener)
        assert last is not None
        for connection in (*kept, last):
            if connection is not None:
                connection.close()


@dataclass
class Transport:
    unread: int = 0
    closing: bool = False
    aborted: bool = False

    def get_write_buffer_size(self) -> int:
        return self.unread

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.aborted = True


@dataclass
class Cycle:
    response_complete: bool


@dataclass(eq=False)
class Protocol:
    cycle: Cycle | None
    timeout_keep_alive_task: object | None
    transport: Transport = field(default_factory=Transport)


async def test_what_is_never_sent_or_read_ends_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connections, "_LOOK_S", 0)
    half_a_head = Protocol(None, None)
    half_a_second_head = Protocol(Cycle(True), None)
    unread = Protocol(Cycle(True), object(), Transport(unread=10))
    closing = Protocol(Cycle(False), None, Transport(unread=5, closing=True))
    slowly_read = Protocol(Cycle(True), object(), Transport(unread=10**6))
    answering = Protocol(Cycle(False), None, Transport(unread=7))
    waiting = Protocol(Cycle(True), object())
    everything = [half_a_head, half_a_second_head, unread, closing, slowly_read, answering, waiting]
    now = 0.0

    def tick() -> float:
        nonlocal now
        now += 1
        slowly_read.transport.unread -= 1
        return now

    ending = asyncio.create_task(end_idle(lambda: everything, tick))
    while now < 15:
        await asyncio.sleep(0)
    assert not any(protocol.transport.aborted for protocol in everything)
    while now < 40:
        await asyncio.sleep(0)
    ending.cancel()
    ended = [protocol.transport.aborted for protocol in everything]
    assert ended == [True, True, True, True, False, False, False]
