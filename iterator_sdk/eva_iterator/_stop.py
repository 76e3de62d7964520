"""Turns SIGTERM, by which the scheduler stops the program, into a flag and then into an exit."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, FunctionType
from typing import cast

STOPPED_CODE = 128 + signal.SIGTERM
"""Exit code of a program that SIGTERM has stopped, as shells have it."""


class Stopped(SystemExit):
    """Ends a program that was asked to stop, once its checkpoint is published.

    A loop over an `EvaIterator` raises it. The exception passes `except Exception`; `finally` and
    `with` blocks run. Unless something catches it the program ends with its code: 143, or 0 if
    its job needs it no more. In another thread than the main one it ends that thread alone.
    """

    def __init__(self, code: int = STOPPED_CODE) -> None:
        super().__init__(code)

    def __reduce__(self) -> tuple[type[Stopped], tuple[int]]:
        """Keeps the code where a package pickles exceptions without their constructors."""
        return type(self), (self.code,)


class Stop:
    """Whether this process was asked to stop.

    Attributes:
        requested: Set once by the first SIGTERM, never cleared.
    """

    __slots__ = ("_installed", "_pid", "requested")

    def __init__(self) -> None:
        self.requested = False
        self._installed = False
        self._pid = os.getpid()

    def install(self) -> None:
        """Handles SIGTERM from now on, if called in the main thread for the first time.

        A handler that the program sets later stays in place.
        """
        if self._installed or threading.current_thread() is not threading.main_thread():
            return
        self._installed = True
        signal.signal(signal.SIGTERM, self._handle)

    def guard(self) -> None:
        """Keeps PyTorch from failing the step in which the program is stopped.

        To be called once a loader has begun. PyTorch watches its workers with a SIGCHLD handler
        that raises wherever the main thread happens to be, and a SIGTERM to the whole process
        group ends the workers, too. From now on it hears of no worker that ends with the program.
        """
        watch = signal.getsignal(signal.SIGCHLD)
        main = threading.current_thread() is threading.main_thread()
        if not (self._installed and main and callable(watch) and _is_of_torch(watch)):
            return

        def watch_unless_stopping(signum: int, frame: FrameType | None) -> None:
            if not (self.requested or _is_within(frame, _HANDLE)):
                watch(signum, frame)

        signal.signal(signal.SIGCHLD, watch_unless_stopping)

    def abandon(self) -> None:
        """Restores the default action of SIGTERM in a child process: to end it."""
        if signal.getsignal(signal.SIGTERM) == self._handle:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _handle(self, signum: int, _frame: FrameType | None) -> None:
        # A loader that began after `guard` has PyTorch's own handler. SIGTERM is the lower number,
        # so this runs first, unless a worker ends just now. Then that handler raises in here, and
        # what is done here is done again.
        while True:
            try:
                self._take(signum)
                return
            except RuntimeError:
                pass

    def _take(self, signum: int) -> None:
        if os.getpid() != self._pid:
            # A child that native code has made, which runs no hooks of Python.
            signal.signal(signum, signal.SIG_DFL)
            os.kill(os.getpid(), signum)
            return
        self.requested = True
        # The step that is under way goes on although its loader's workers were stopped. A function
        # replaces PyTorch's, not SIG_DFL: Python reports a signal that has arrived and has no
        # function to handle it any more as an error.
        if _is_of_torch(signal.getsignal(signal.SIGCHLD)):
            signal.signal(signal.SIGCHLD, _expected)


_HANDLE = cast("FunctionType", Stop._handle)


def _is_of_torch(handler: object) -> bool:
    return str(getattr(handler, "__module__", "")).startswith("torch.")


def _is_within(frame: FrameType | None, function: FunctionType) -> bool:
    """Whether a frame is of a function, or of what it has called."""
    while frame is not None:
        if frame.f_code is function.__code__:
            return True
        frame = frame.f_back
    return False


def _expected(_signum: int, _frame: FrameType | None) -> None:
    """A child has ended, as it was to."""
