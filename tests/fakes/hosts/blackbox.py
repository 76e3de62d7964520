"""The flight recorder of a test host: what programs do there, written down outside of the cluster.

Programs in containers see nothing of the machine but its loopback interface, so that is where it
listens; the other end is `record` in `tests/e2e/programs`. The recorder needs no network and
outlives the instance's disk. Its files are those of a plain `Cluster`: a JSON line per event in
``JOB.INDEX``, and a lock for each task that is held as long as its program is connected. The kernel
closes the connection of a program that dies, and frees the locks of a machine that does.
"""

from __future__ import annotations

import fcntl
import os
import socketserver
import threading
from pathlib import Path


class BlackBox:
    """Serves the programs of one machine in threads that end with the process.

    Args:
        directory: Where records are kept, the same for all machines.
        port: Where to listen, 0 for any.

    Attributes:
        address: ``HOST:PORT``.
    """

    def __init__(self, directory: Path, port: int = 0) -> None:
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.directory = directory
        self.address = f"127.0.0.1:{self._server.server_address[1]}"

    def start(self) -> None:
        """Listen."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    directory: Path


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        """Lock the task that the first line names; then write down line for line.

        The answer to the first line is ``alone`` or ``overlap``, to each other line ``go`` or
        ``finish``; an empty line is a mere question.
        """
        directory = self.server.directory
        task = self.rfile.readline().decode().strip()
        finish = directory / f"{task.rpartition('.')[0]}.finish"
        lock = os.open(directory / f"{task}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        record = os.open(directory / task, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            self._answer("alone" if _locked(lock) else "overlap")
            for line in self.rfile:
                if line.strip():
                    os.write(record, line)
                self._answer("finish" if finish.exists() else "go")
        except ConnectionError:
            return  # The program was killed.
        finally:
            os.close(record)
            os.close(lock)

    def _answer(self, word: str) -> None:
        self.wfile.write(f"{word}\n".encode())


def _locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
