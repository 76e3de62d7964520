"""Keeps the agent running. Small, so that there is little in it to fail."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import structlog

from eva_worker.process.backoff import Backoff
from eva_worker.process.logging import configure
from eva_worker.settings import ENVIRONMENT, Settings

_PR_SET_CHILD_SUBREAPER = 36
_SETTLED_S = 60.0
_FAREWELL_S = (30.0, 900.0)
"""An agent that is to leave because there is no master has as long as there was none, but at least
and at most so long, to store what its tasks leave behind; then the instance goes without it."""
_LOOKS = 20
"""At a contact, in the time after which a worker counts as abandoned."""
_TERMINATION = {signal.SIGTERM, signal.SIGINT}

_log = structlog.get_logger()


@dataclass
class _Contact:
    """How long ago there was a master, by a file that the agent touches as long as there is one.

    Only changes of the file's time count, and they are dated by this process: clocks that are set
    have no effect. A worker that starts has just had contact.
    """

    file: Path
    limit_s: float
    _seen: int = 0
    _at: float = 0.0

    def __post_init__(self) -> None:
        self._at = time.monotonic()
        self._seen = self._touched()

    def left_s(self) -> float | None:
        """Until the worker counts as abandoned, `None` for never."""
        if not self.limit_s:
            return None
        touched = self._touched()
        if touched != self._seen:
            self._seen, self._at = touched, time.monotonic()
        return max(0.0, self._at + self.limit_s - time.monotonic())

    def _touched(self) -> int:
        with contextlib.suppress(OSError):
            return self.file.stat().st_mtime_ns
        return 0


def supervise(settings: Settings) -> int:
    """Run the agent, again whenever it dies, until it has left in good order.

    An agent that dies while it empties the instance is followed by one that goes on with it; only
    a second request to leave is carried out whatever becomes of the tasks.

    An agent that has no master for too long is asked to leave, whatever it is that does not work.
    When the worker has left without having been told to by a signal, the instance is switched off.

    Tasks of an agent that died become children of this process, so they stay in one tree with it
    and leave no zombies.

    Returns:
        The agent's exit code.
    """
    configure(instance=settings.instance)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Signals wait until asked for: no handler, hence no race with one.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *_TERMINATION})
    watch = _Watch(settings)
    backoff = Backoff(jitter=False)
    while True:
        began = time.monotonic()
        code = watch.run_agent()
        if code == 0 or watch.hurried:
            break
        if time.monotonic() - began >= _SETTLED_S:
            backoff.reset()
        pause = backoff.next_s()
        _log.warning("agent died", code=code, again_in_s=pause)
        # Asked to leave, there must be an agent once more: tasks may run, which it stops.
        watch.asked += _pause(pause)
        if watch.asked > 1:
            break
    if settings.power_off and not watch.asked:
        _log.warning("switching the instance off", command=settings.power_off)
        subprocess.run(settings.power_off, shell=True, check=False)  # noqa: S602 - the operator's
    return abs(code)


class _Watch:
    """Sees one agent after the other to its end.

    Args:
        settings: For the agents.

    Attributes:
        asked: How often this worker was asked to leave by a signal.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._contact = _Contact(settings.contact_file, settings.abandoned_after_s)
        self._abandoned_at: float | None = None
        least, most = _FAREWELL_S
        self._farewell_s = min(most, max(least, settings.abandoned_after_s))
        self.asked = 0

    @property
    def hurried(self) -> bool:
        """Whether there is no time for another agent, whatever becomes of the tasks."""
        return self.asked > 1 or (self._abandoned_at is not None and self._left_s() == 0)

    def run_agent(self) -> int:
        """Run one agent to its end; returns its exit code."""
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-P", "-m", "eva_worker.agent"],
            os.environ | {ENVIRONMENT: self._settings.to_json()},
            setsid=True,  # A Ctrl-C is the supervisor's to forward.
            setsigmask=_TERMINATION,  # Until it can handle them.
        )
        if self.asked or self._abandoned_at is not None:
            os.kill(pid, signal.SIGTERM)
        killed = False
        while (code := _reap().get(pid)) is None:
            signaled = _await_signal(None if killed else self._patience_s())
            if signaled in _TERMINATION:
                self.asked += 1
                os.kill(pid, signal.SIGTERM)
            elif signaled is None and self._left_s() == 0:
                killed = self._abandoned_at is not None
                self._run_out(pid)
        return code

    def _left_s(self) -> float | None:
        """Until something is to be done about an agent that has no master, `None` for never."""
        if self._abandoned_at is None:
            return self._contact.left_s()
        return max(0.0, self._abandoned_at + self._farewell_s - time.monotonic())

    def _patience_s(self) -> float | None:
        """Until there is something to be looked at, `None` for never."""
        left_s = self._left_s()
        if left_s is None or self._abandoned_at is not None:
            return left_s
        # A contact is dated when it is seen: whoever looks too rarely takes it for later.
        return min(left_s, self._contact.limit_s / _LOOKS)

    def _run_out(self, pid: int) -> None:
        """Its time without a master is over, or the time to leave in good order."""
        if self._abandoned_at is None:
            self._abandoned_at = time.monotonic()
            _log.error("no master for too long: leaving", after_s=self._contact.limit_s)
            os.kill(pid, signal.SIGTERM)
        else:
            _log.error("not all that tasks have left behind is stored", after_s=self._farewell_s)
            os.kill(pid, signal.SIGKILL)


def _await_signal(within_s: float | None) -> int | None:
    """Wait for a child's end or a request to leave; returns the signal, `None` if none came."""
    if within_s is None:
        return signal.sigwait({signal.SIGCHLD, *_TERMINATION})
    info = signal.sigtimedwait({signal.SIGCHLD, *_TERMINATION}, within_s)
    return info.si_signo if info else None


def _pause(seconds: float) -> int:
    """Wait, or until asked to leave; returns how often that was."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        info = signal.sigtimedwait({signal.SIGCHLD, *_TERMINATION}, left)
        if info and info.si_signo in _TERMINATION:
            return 1
        _reap()
    return 0


def _reap() -> dict[int, int]:
    """Collect dead children, own and adopted: pid to exit code."""
    codes: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return codes
        if pid == 0:
            return codes
        codes[pid] = os.waitstatus_to_exitcode(status)
