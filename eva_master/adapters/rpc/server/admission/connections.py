"""Ends connections of callers that have not said who they are, before these take all there are.

gRPC counts the connections of a port, whoever made them, and refuses those beyond. So the oldest
connections by which nobody has proved anything end while there is still room for others.
"""

from __future__ import annotations

import contextlib
import heapq
import ipaddress
import os
import socket
import stat
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import grpc

from eva_master.adapters.rpc.handlers import Context, Handler, HandlerInterceptor, wrapped
from eva_master.adapters.rpc.server.admission.places import address_of

_LOOK_EVERY_S = 0.2
_FORGET_EVERY_S = 10.0
"""Callers that have gone are known for so long at most, where there are many."""
_PART_OF_STRANGERS = 2
"""Strangers may have this part of the connections that nobody else has,"""
_LEAST_PART = 8
"""and at least this part of all."""
_PART_OF_KNOWN = 4
"""All but this part may be of callers that are known; then the one with most loses some."""
_FILES = "/dev/fd"


class Callers:
    """Connections and the callers that proved something by them; any thread may use it.

    Attributes:
        holders: By gRPC's name for the peer: a user, or an instance.
    """

    def __init__(self) -> None:
        self.holders: dict[str, str] = {}

    def admit(self, peer: str, holder: str) -> None:
        """Note who calls by a connection."""
        self.holders[unquote(peer)] = holder


class CertifiedInterceptor(HandlerInterceptor):
    """Notes callers of a port where nobody gets through the handshake without a certificate."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    def wrap(
        self,
        handler: grpc.RpcMethodHandler[Any, Any],
        method: str,  # noqa: ARG002
    ) -> grpc.RpcMethodHandler[Any, Any]:
        """Note the callers of a handler."""
        return wrapped(handler, self._noted)

    def _noted(self, behaviour: Handler) -> Handler:
        async def coroutine(request: Any, context: Context) -> Any:
            names = [*context.auth_context().get("x509_common_name", ())]
            holder = names[0].decode(errors="replace") if names else ""
            self._callers.admit(context.peer(), f"instance {holder}")
            return await behaviour(request, context)

        return coroutine


@dataclass(frozen=True, slots=True)
class Connection:
    """A connection of a port.

    Attributes:
        port: The port.
        file: Its descriptor.
        inode: Tells it from others that have had the same descriptor.
        peer: As gRPC names it.
        seen_s: When it was seen first.
    """

    port: int
    file: int
    inode: int
    peer: str
    seen_s: float


def superfluous(
    connections: Iterable[Connection], holders: Mapping[str, str], most: int
) -> list[Connection]:
    """The connections of a port that are to end, so that others find room.

    The address of strangers, or else the user, with most connections loses its oldest ones.

    Args:
        connections: All that there are.
        holders: Token or certificate holders, by peer.
        most: So many may there be.
    """
    strangers: defaultdict[str, list[Connection]] = defaultdict(list)
    callers: defaultdict[str, list[Connection]] = defaultdict(list)
    for connection in sorted(connections, key=lambda one: (one.seen_s, one.inode), reverse=True):
        holder = holders.get(connection.peer)
        if holder is None:
            strangers[address_of(connection.peer)].append(connection)
        else:
            callers[holder].append(connection)
    count = sum(map(len, callers.values()))
    allowed = max(most // _LEAST_PART, (most - count) // _PART_OF_STRANGERS)
    return [*_beyond(allowed, strangers), *_beyond(most - most // _PART_OF_KNOWN, callers)]


def _beyond(allowed: int, groups: Mapping[str, list[Connection]]) -> Iterable[Connection]:
    """The oldest connections of the largest groups, until so many are left in all."""
    largest = [(-len(group), name) for name, group in groups.items()]
    heapq.heapify(largest)
    for _ in range(sum(map(len, groups.values())) - allowed):
        size, name = largest[0]
        yield groups[name].pop()
        heapq.heapreplace(largest, (size + 1, name))


class Doorkeeper:
    """Looks at the connections of ports, on a thread of its own, until it is stopped.

    Args:
        callers: Known callers.
        most: How many connections each port may have.
    """

    def __init__(self, callers: Callers, most: int) -> None:
        self._callers = callers
        self._most = most
        self._seen: dict[int, Connection | None] = {}
        """Sockets by their inodes; `None` for those that are no connections of the ports."""
        self._ports: tuple[int, ...] = ()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="doorkeeper", daemon=True)

    def start(self, *ports: int) -> None:
        """Begin to look after ports of this process."""
        self._ports = ports
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and wait for its end."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        calm = self._most // _LEAST_PART
        looked_s = time.monotonic()
        while not self._stop.wait(_LOOK_EVERY_S):
            # Files that are not those of known callers may be strangers' connections.
            files, callers = len(_open_files()), len(self._callers.holders)
            late = time.monotonic() > looked_s + _FORGET_EVERY_S
            if files - callers > calm or (late and files + callers > calm):
                self.look()
                looked_s = time.monotonic()

    def look(self) -> None:
        """End the connections that are superfluous now."""
        holders = list(self._callers.holders)
        connections = self._connections()
        for port in self._ports:
            here = [candidate for candidate in connections if candidate.port == port]
            for connection in superfluous(here, self._callers.holders, self._most):
                _end(connection)
        peers = {seen.peer for seen in connections}
        for peer in holders:
            if peer not in peers:
                self._callers.holders.pop(peer, None)

    def _connections(self) -> list[Connection]:
        now, before, self._seen = time.monotonic(), self._seen, {}
        for file in _open_files():
            with contextlib.suppress(OSError):
                status = os.fstat(file)
                if not stat.S_ISSOCK(status.st_mode):
                    continue
                inode = status.st_ino
                if inode in before:
                    self._seen[inode] = before[inode]
                else:
                    self._seen[inode] = self._inspected(file, inode, now)
        return [connection for connection in self._seen.values() if connection is not None]

    def _inspected(self, file: int, inode: int, now: float) -> Connection | None:
        """Kind of a socket; the descriptor may be another one by now, and gone."""
        with _duplicate(file) as connection:
            if connection.family not in (socket.AF_INET, socket.AF_INET6):
                return None
            port = connection.getsockname()[1]
            if port not in self._ports:
                return None
            try:
                host, from_port, *_ = connection.getpeername()
            except OSError:  # The socket listens.
                return None
        return Connection(port, file, inode, _peer(host, from_port), now)


def _open_files() -> list[int]:
    with os.scandir(_FILES) as files:
        return [int(file.name) for file in files]


def _peer(host: str, port: int) -> str:
    """A peer as gRPC names it."""
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return f"ipv6:[{host}]:{port}"
        address = address.ipv4_mapped
    return f"ipv4:{address}:{port}"


@contextlib.contextmanager
def _duplicate(file: int) -> Iterator[socket.socket]:
    """A socket of gRPC's, under a descriptor of our own that stays its while we use it."""
    with socket.socket(fileno=os.dup(file)) as connection:
        yield connection


def _end(connection: Connection) -> None:
    """Tell gRPC, and the peer, that a connection is over."""
    with contextlib.suppress(OSError), _duplicate(connection.file) as duplicate:
        if os.fstat(duplicate.fileno()).st_ino == connection.inode:
            duplicate.shutdown(socket.SHUT_RDWR)
