"""Finds out before anything is opened whether this machine's ports are free."""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping
from contextlib import ExitStack

import psutil

from eva_wire.values.errors import CannotListen

_FIRST_FOR_ALL = 1024
"""Ports below this one are for root."""


def require_free(wanted: Mapping[str, str]) -> None:
    """Make sure that somebody can listen on addresses.

    Args:
        wanted: ``HOST:PORT`` by the name of its setting; port 0 is always free.

    Raises:
        CannotListen: A port is taken or wanted twice, or an address is not this machine's.
    """
    tried: dict[tuple[object, ...], str] = {}
    with ExitStack() as stack:
        for setting, address in wanted.items():
            host, _, port = address.rpartition(":")
            if port == "0":
                continue
            for family, place in _resolved(setting, address, host.strip("[]"), int(port)):
                if (other := tried.get(place)) is not None:
                    raise CannotListen(
                        f"{setting} and {other} are the same: {address}",
                        hint=f"choose another port for {setting}",
                    )
                tried[place] = setting
                probe = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(place)
                except OSError as error:
                    raise _explained(setting, address, int(port), error) from error


def _resolved(
    setting: str, address: str, host: str, port: int
) -> list[tuple[socket.AddressFamily, tuple[str, int] | tuple[str, int, int, int]]]:
    try:
        addresses = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise CannotListen(
            f"cannot listen on {address} ({setting}): nobody knows the host {host!r}",
            hint="write an address of this machine, or 0.0.0.0 for all of them",
        ) from error
    return [(family, place) for family, _, _, _, place in addresses]  # type: ignore[misc]


def _explained(setting: str, address: str, port: int, error: OSError) -> CannotListen:
    why, hint = error.strerror or str(error), f"choose another address for {setting}"
    if error.errno == errno.EADDRINUSE:
        why = f"{_holder(port)} has this port"
        hint = f"end that process, or choose another port for {setting}"
    elif error.errno == errno.EADDRNOTAVAIL:
        why = "this machine has no such address"
        hint = (
            "write an address of this machine, or 0.0.0.0 for all of them; "
            "what others dial is the setting advertise"
        )
    elif error.errno == errno.EACCES and port < _FIRST_FOR_ALL:
        why = f"ports below {_FIRST_FOR_ALL} are for root"
        hint = f"choose a port from {_FIRST_FOR_ALL} on for {setting}"
    return CannotListen(f"cannot listen on {address} ({setting}): {why}", hint=hint)


def _holder(port: int) -> str:
    """The process that listens on a port, as far as this user may know."""
    try:
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and port in connection.laddr[1:]:
                process = psutil.Process(connection.pid) if connection.pid else None
                return f"{process.name()} (pid {process.pid})" if process else "another process"
    except (psutil.Error, OSError):
        pass
    return "another process"
