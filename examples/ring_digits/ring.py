"""Sums arrays over the members of a gang: a ring all-reduce on plain TCP sockets.

Every member sends to the next one and receives from the one before. An array is cut into as many
parts as there are members; each part goes round once to be summed and once more to be handed out.
So a member sends about twice the array, however many members there are, and all of them end with
the same bits.
"""

import contextlib
import json
import os
import socket
import struct
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

JOIN_S = 120
"""The members' machines come up and fetch their files at different times."""
SILENCE_S = 60
"""Longer than the others ever wait for a member, its checkpoints included."""
LENGTH, LONGEST = struct.Struct("!I"), 1 << 20
HEADER = struct.Struct("!8sQ")
"""Type and size of an array."""


class PeerLost(Exception):
    """A member is gone or sent something invalid: the gang has to start again."""


class Ring:
    """Connections to both neighbours; none where there is one member only.

    Environment: MASTER_ADDR and MASTER_PORT, where member 0 listens; NODE_RANK, this member's
    number; NNODES, how many there are. Eva sets them for every gang.

    Raises:
        PeerLost: A member did not connect in time.
    """

    def __init__(self):
        self.rank = int(os.environ.get("NODE_RANK", "0"))
        self.size = int(os.environ.get("NNODES", "1"))
        self.left, self.right = (self.rank - 1) % self.size, (self.rank + 1) % self.size
        if self.size > 1:
            # If all members sent before they received, none would receive.
            self.sender = ThreadPoolExecutor(1)
            try:
                self.connect(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
            except (OSError, ValueError) as error:
                raise PeerLost(f"member {self.rank} found no ring: {error}") from error

    def connect(self, host, port):
        """Learns the members' addresses from member 0, then connects to both neighbours."""
        deadline = time.monotonic() + JOIN_S
        with socket.create_server(("", 0 if self.rank else port)) as server:
            server.settimeout(JOIN_S)
            if self.rank == 0:
                ring = self.gather(server, (host, port))
            else:
                with dial(host, port, deadline) as master:
                    mine = (master.getsockname()[0], server.getsockname()[1])
                    say(master, (self.size, self.rank, *mine))
                    ring = hear(master)
            self.next = dial(*ring[self.right], deadline)
            say(self.next, self.rank)
            self.previous, _ = server.accept()
        for connection in (self.next, self.previous):
            prepare(connection)
        if (rank := hear(self.previous)) != self.left:
            raise PeerLost(f"{rank!r} called, which is not member {self.left}")

    def gather(self, server, own):
        """On member 0: waits for all others, then sends all of them the list of addresses."""
        ring, callers = {0: own}, []
        while len(ring) < self.size:
            caller, _ = server.accept()
            caller.settimeout(JOIN_S)
            size, rank, *address = hear(caller)
            if size != self.size or rank in ring or not 0 < rank < size:
                raise PeerLost(f"member {rank} of {size} came to a gang of {self.size}")
            ring[rank] = address
            callers.append(caller)
        ring = [ring[rank] for rank in range(self.size)]
        for caller in callers:
            with caller:
                say(caller, ring)
        return ring

    def sum(self, array):
        """Returns the sum of everyone's array; all members must call it equally often.

        Raises:
            PeerLost: A member ended, fell silent, or has an array of another size or type.
        """
        total = array.copy()
        parts = np.array_split(total, self.size)
        for turn in range(self.size - 1):  # Each part is added up on its way round,
            mine, theirs = (self.rank - turn) % self.size, (self.rank - turn - 1) % self.size
            parts[theirs] += self.exchange(parts[mine], parts[theirs])
        for turn in range(self.size - 1):  # and is complete when it starts on the next.
            mine, theirs = (self.rank + 1 - turn) % self.size, (self.rank - turn) % self.size
            parts[theirs][:] = self.exchange(parts[mine], parts[theirs])
        return total

    def exchange(self, mine, like):
        """Sends a part to the next member while it receives one from the previous."""
        message = HEADER.pack(mine.dtype.str.encode(), mine.nbytes) + mine.tobytes()
        sending = self.sender.submit(self.next.sendall, message)
        header, theirs = bytearray(HEADER.size), np.empty_like(like)
        try:
            receive(self.previous, memoryview(header))
            kind, size = HEADER.unpack(header)
            if (kind.rstrip(b"\0").decode(), size) != (like.dtype.str, like.nbytes):
                raise PeerLost(f"member {self.left} has an array of another size or type")
            receive(self.previous, memoryview(theirs.view(np.uint8)))
        except OSError as error:
            raise PeerLost(f"member {self.left} is gone: {error}") from error
        try:
            sending.result()
        except OSError as error:
            raise PeerLost(f"member {self.right} is gone: {error}") from error
        return theirs

    def close(self):
        """Closes the connections, so that the neighbours notice the end at once."""
        for connection in (self.next, self.previous) if self.size > 1 else ():
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # wakes the sender, too
            connection.close()


def dial(host, port, deadline):
    """Connects to an address as soon as another member listens there."""
    while True:
        try:
            return socket.create_connection((host, port), timeout=JOIN_S)
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def prepare(connection):
    """Sends small messages at once, and notices when a neighbour's machine is gone."""
    connection.settimeout(SILENCE_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT):
        connection.setsockopt(socket.IPPROTO_TCP, option, 4)


def say(connection, words):
    message = json.dumps(words).encode()
    connection.sendall(LENGTH.pack(len(message)) + message)


def hear(connection):
    """Reads a message; raises ValueError if it is not a member's."""
    length = bytearray(LENGTH.size)
    receive(connection, memoryview(length))
    if (size := LENGTH.unpack(length)[0]) > LONGEST:
        raise ValueError(f"a message of {size} bytes")
    message = bytearray(size)
    receive(connection, memoryview(message))
    return json.loads(message)


def receive(connection, buffer):
    """Fill the buffer from the connection."""
    while len(buffer) > 0:
        count = connection.recv_into(buffer)
        if count == 0:
            raise ConnectionResetError("connection closed")
        buffer = buffer[count:]
