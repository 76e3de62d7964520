"""Ports that a test can have a server listen on, later and again; each is given once."""

from __future__ import annotations

import random
import socket

_FIRST, _LAST = 10_240, 19_999
"""Below those that the system hands out to clients: one of these may have taken by then a port
that was free when asked for."""
_TRIES = 200

_taken: list[socket.socket] = []
"""A socket per port given, whose name takes the port for as long as this process lives."""


def free_port(host: str = "127.0.0.1") -> int:
    """A port on which nobody listens, which no client and no other caller will be given.

    That holds for all processes of this network, whoever's they are: names of abstract sockets are
    unique there, need no file, and end with the process.

    Raises:
        RuntimeError: There is none.
    """
    for _ in range(_TRIES):
        port = random.randint(_FIRST, _LAST)
        if _take(port) and _nobody_listens(host, port):
            return port
    raise RuntimeError(f"no free port on {host}")


def _take(port: int) -> bool:
    mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        mark.bind(f"\0eva-test-port-{port}")
    except OSError:
        mark.close()
        return False
    _taken.append(mark)
    return True


def _nobody_listens(host: str, port: int) -> bool:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((host, port))
        except OSError:
            return False
    return True
