"""Finds which processes listen on a TCP port, from the tables of the kernel."""

from __future__ import annotations

import contextlib
import ipaddress
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from eva_worker.errors import AttachRefused

_LISTENS = "0A"
_WORD = 4
_LOOPBACK = {4: "127.0.0.1", 6: "::1"}
_SOCKET = "socket:["


@dataclass(frozen=True, slots=True)
class Listener:
    """A socket that waits for connections.

    Attributes:
        address: Where it is bound.
        inode: Tells it from other sockets.
    """

    address: ipaddress.IPv4Address | ipaddress.IPv6Address
    inode: int


def listeners(port: int, pid: int | str = "self") -> list[Listener]:
    """The sockets that listen on a port in the network of a process."""
    sockets = []
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            address, _, number = fields[1].partition(":")
            if fields[3] == _LISTENS and int(number, 16) == port:
                sockets.append(Listener(_address(address), int(fields[9])))
    return sockets


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address as the kernel writes it: words of four bytes in the machine's order.

    One of version 4 that a socket of version 6 is bound to is of version 4.
    """
    packed = bytes.fromhex(text)
    words = (packed[start : start + _WORD] for start in range(0, len(packed), _WORD))
    address = ipaddress.ip_address(b"".join(word[::-1] for word in words))
    return getattr(address, "ipv4_mapped", None) or address


def sockets_of(pids: Iterable[int]) -> set[int]:
    """The inodes of the sockets that processes have open."""
    inodes = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for entry in os.scandir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    target = os.readlink(entry.path)  # noqa: PTH115
                    if target.startswith(_SOCKET):
                        inodes.add(int(target[len(_SOCKET) : -1]))
    return inodes


def on_this_machine(run: str, port: int, pids: Iterable[int]) -> tuple[str, int]:
    """Where some processes listen on a port of this machine's network.

    Args:
        run: The task run, for messages.
        port: The port.
        pids: The processes.

    Raises:
        AttachRefused: None of them does, or another process would get the connection.
    """
    open_sockets, own = listeners(port), sockets_of(pids)
    for listener in open_sockets:
        if listener.inode not in own:
            continue
        version = listener.address.version
        wild = listener.address.is_unspecified
        target = ipaddress.ip_address(_LOOPBACK[version]) if wild else listener.address
        rivals = [
            other
            for other in open_sockets
            if other.inode not in own
            and other.address.version == version
            and (other.address == target or other.address.is_unspecified)
        ]
        if not rivals:
            return str(target), port
    raise AttachRefused(
        f"no process of {run} listens on port {port}",
        "see that its program has begun to listen; ports of other tasks and of the machine are"
        " not forwarded",
    )


def in_container(run: str, port: int, pid: int, address: str) -> tuple[str, int]:
    """Where a container with a network of its own listens on a port.

    Args:
        run: The task run, for messages.
        port: The port.
        pid: The first process of the container.
        address: The container's address.

    Raises:
        AttachRefused: No process of it does, or not at that address.
    """
    open_sockets = listeners(port, pid)
    for listener in open_sockets:
        if listener.address.is_unspecified or str(listener.address) == address:
            return address, port
    if open_sockets:
        raise AttachRefused(
            f"{run} listens on port {port} of {open_sockets[0].address} alone, which is not reached"
            " from outside its container",
            "have its program listen on 0.0.0.0",
        )
    raise AttachRefused(
        f"no process of {run} listens on port {port}", "see that its program has begun to listen"
    )
