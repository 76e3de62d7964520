"""Bounds of connections: how many there are, and for how long one may do nothing."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterable
from typing import Any

_LOOK_S = 5.0
_SILENT_S = 20.0
"""A request whose head is not complete by then, or an answer of which nothing is read, ends."""


class BoundedListener(socket.socket):
    """A listening socket that closes connections beyond a number, before anything is read.

    Attributes:
        most: Connections at the same time.
        most_per_host: Of one address, where there are addresses.
    """

    most = 1_000
    most_per_host = 256

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._open: list[tuple[socket.socket, str]] = []

    def accept(self) -> tuple[socket.socket, Any]:
        """Accept a connection.

        Raises:
            BlockingIOError: There is none, or it was one too many.
        """
        connection, address = super().accept()
        host = str(address[0]) if isinstance(address, tuple) else ""
        self._open = [entry for entry in self._open if entry[0].fileno() >= 0]
        same = sum(host == other for _, other in self._open) if host else 0
        if len(self._open) >= self.most or same >= self.most_per_host:
            connection.close()
            raise BlockingIOError
        self._open.append((connection, host))
        return connection, address


def idle_state(protocol: Any) -> tuple[str, int] | None:
    """The thing that a connection waits for, if it must not wait for long; `None` if it may.

    Args:
        protocol: One of uvicorn's.
    """
    cycle, transport = protocol.cycle, protocol.transport
    active = cycle is not None and not cycle.response_complete
    if transport is None or (active and not transport.is_closing()):
        return None
    if unread := transport.get_write_buffer_size():
        return "unread", unread
    return None if protocol.timeout_keep_alive_task is not None else ("head", 0)


async def end_idle(
    connections: Callable[[], Iterable[Any]], now_s: Callable[[], float] = time.monotonic
) -> None:
    """End connections whose peers neither send nor read what they have begun, for ever.

    Args:
        connections: uvicorn's protocols.
        now_s: A monotonic clock in seconds.
    """
    since: dict[Any, tuple[tuple[str, int], float]] = {}
    while True:
        now, before = now_s(), since
        since = {}
        for protocol in list(connections()):
            if (state := idle_state(protocol)) is None:
                continue
            same = protocol in before and before[protocol][0] == state
            since[protocol] = before[protocol] if same else (state, now)
            if now - since[protocol][1] > _SILENT_S:
                protocol.transport.abort()
        await asyncio.sleep(_LOOK_S)
