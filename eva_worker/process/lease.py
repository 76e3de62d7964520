"""The lease that an owned node's tasks run under, and kernel timers that count suspended time.

Standard library only, and it imports nothing of this package: each task's parent loads it by its
path, so that it acts though the agent is killed or stopped.

The lease is a file of the agent's. All times are those of CLOCK_BOOTTIME, which nobody sets and
which goes on while the machine is suspended; so a lease of an earlier boot is none.
"""

import contextlib
import ctypes
import json
import os
import signal
import time
from typing import Any

Lease = tuple[int, int]
"""Its epoch and the time at which it ends, in milliseconds since the boot. An epoch ends for good
when a lease of it has run out: no later lease is for what ran under it."""

_CLOCK_BOOTTIME = 7
_ABSOLUTE = 1
_MOST_MS = 10**13


def now_ms() -> int:
    """Milliseconds since the boot, those included in which the machine was suspended."""
    return time.clock_gettime_ns(_CLOCK_BOOTTIME) // 1_000_000


def boot_id() -> str:
    """Identity of this boot of the machine."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:  # noqa: PTH123
        return file.read().strip()


def read(path: str) -> Lease | None:
    """Read a lease; `None` if there is none of this boot that makes sense."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs 5 ms here
            document: dict[str, Any] = json.load(file)
        epoch, until_ms = int(document["epoch"]), int(document["until_ms"])
        return (epoch, min(until_ms, _MOST_MS)) if document["boot"] == boot_id() else None
    except (OSError, ValueError, TypeError, KeyError):
        return None


def write(path: str, lease: Lease) -> None:
    """Replace a lease at once as a whole. After a power cut it would be of another boot."""
    aside = f"{path}.new"
    with open(aside, "w", encoding="utf-8") as file:  # noqa: PTH123
        json.dump({"boot": boot_id(), "epoch": lease[0], "until_ms": lease[1]}, file)
    os.replace(aside, path)  # noqa: PTH105


def left_ms(path: str, epoch: int) -> int:
    """Milliseconds for which what runs under an epoch of a lease may still run; 0 for no more."""
    lease = read(path)
    return max(0, lease[1] - now_ms()) if lease is not None and lease[0] == epoch else 0


class Timer:
    """A timer of the kernel's that sends SIGALRM, and wakes this process from any wait for it.

    Raises:
        OSError: The kernel has none to give.
    """

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        if not hasattr(self._libc, "timer_create"):
            self._libc = ctypes.CDLL("librt.so.1", use_errno=True)
        # A blocked signal without a handler is kept; its default action would end the process.
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        self._timer = ctypes.c_void_p()
        self._check(self._libc.timer_create(_CLOCK_BOOTTIME, None, ctypes.byref(self._timer)))

    def after(self, ms: int) -> None:
        """Ring once, so many milliseconds from now; the present moment counts as soon."""
        at = now_ms() + max(1, ms)
        # The interval is 0, so it rings once.
        spec = (ctypes.c_long * 4)(0, 0, at // 1000, at % 1000 * 1_000_000)
        self._check(self._libc.timer_settime(self._timer, _ABSOLUTE, ctypes.byref(spec), None))

    def close(self) -> None:
        """Give the timer back to the kernel."""
        with contextlib.suppress(OSError):
            self._check(self._libc.timer_delete(self._timer))

    @staticmethod
    def _check(result: int) -> None:
        if result != 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
