"""Ports that a test can have a server listen on, later and again."""

from __future__ import annotations

import random
import socket

_FIRST, _LAST = 10_240, 19_999
"""Below those that the system hands out to clients: one of these may have taken by then a port
that was free when asked for."""
_TRIES = 100


def free_port(host: str = "127.0.0.1") -> int:
    """A port on which nobody listens and which no client will be given."""
    for _ in range(_TRIES):
        port = random.randint(_FIRST, _LAST)
        with socket.socket() as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                trial.bind((host, port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no free port on {host}")
