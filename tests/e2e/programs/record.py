"""Where programs write down, outside the cluster, what they do.

There is one JSON line per event in ``$RECORD/JOB.INDEX``; a lock that the kernel frees at the
program's death shows whether a task ever ran twice at a time; and the program ends when a file
``$RECORD/JOB.finish`` appears, so that tests decide when. A program in a container has no such
directory. There the machine writes it all down (`tests/fakes/hosts/blackbox.py`), and is asked over
the loopback interface, ``$EVA_BLACK_BOX``.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

_TASK = os.environ["EVA_TASK_ID"].replace("/", ".")


class Record:
    """The record of this program's task.

    Attributes:
        alone: Whether the task's lock was free; this program holds it as long as it lives.
    """

    def __init__(self) -> None:
        box = os.environ.get("EVA_BLACK_BOX")
        self._keeper = _Box(box) if box else _Files()
        self.alone = self._keeper.alone

    def say(self, event: str, step: int, **more: Any) -> None:
        """Append an event; it is written down when this returns."""
        line = {
            "event": event,
            "attempt": int(os.environ["EVA_ATTEMPT"]),
            "pid": os.getpid(),
            "at_ms": time.time_ns() // 1_000_000,
            "step": step,
            **more,
        }
        self._keeper.append(json.dumps(line) + "\n")

    def finish(self) -> bool:
        """Whether the program is to end."""
        return self._keeper.finish()


class _Files:
    def __init__(self) -> None:
        self._directory = Path(os.environ["RECORD"])
        lock = os.open(self._directory / f"{_TASK}.lock", os.O_RDWR | os.O_CREAT, 0o600)
        self.alone = True
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.alone = False

    def append(self, line: str) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        descriptor = os.open(self._directory / _TASK, flags, 0o600)
        os.write(descriptor, line.encode())
        os.close(descriptor)

    def finish(self) -> bool:
        return (self._directory / f"{os.environ['EVA_JOB_ID']}.finish").exists()


class _Box:
    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._stream = socket.create_connection((host, int(port))).makefile("rw")
        self.alone = self._ask(f"{_TASK}\n") == "alone"

    def append(self, line: str) -> None:
        self._ask(line)

    def finish(self) -> bool:
        return self._ask("\n") == "finish"

    def _ask(self, line: str) -> str:
        answer = ""
        with contextlib.suppress(OSError):
            self._stream.write(line)
            self._stream.flush()
            answer = self._stream.readline().strip()
        while not answer:  # The machine is being switched off: its processes die in any order.
            signal.pause()
        return answer
