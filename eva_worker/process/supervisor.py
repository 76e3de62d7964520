"""Keeps the agent running, with little code so that little can fail."""

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
from typing import Protocol

import structlog

from eva_wire.service.logs import configure
from eva_worker.process.backoff import Backoff
from eva_worker.process.exits import shell_code
from eva_worker.settings import ENVIRONMENT, SUPERVISOR, Settings

_PR_SET_CHILD_SUBREAPER = 36
_SETTLED_S = 60.0
_FAREWELL_S = (30.0, 900.0)
"""Bounds of the time, in seconds, that an agent without a master gets to upload its tasks' files:
as long as there was no master. Then the instance is switched off.
"""
_LOOKS = 20
"""Looks at the contact file within the time after which a worker counts as abandoned."""
_TERMINATION = {signal.SIGTERM, signal.SIGINT}
_WAKING = {signal.SIGCHLD, signal.SIGALRM, *_TERMINATION}

_log = structlog.get_logger()


@dataclass
class _ContactFile:
    """How long ago there was a master, from a file that the agent touches while there is one.

    Only changes of the file's time count, and this process dates them with its own monotonic clock,
    so setting the system clock has no effect. A worker that starts counts as just having had
    contact.
    """

    file: Path
    limit_s: float
    _seen: int = 0
    _at: float = 0.0

    def __post_init__(self) -> None:
        self._at = time.monotonic()
        self._seen = self._touched()

    def left_s(self) -> float | None:
        """Seconds until the worker counts as abandoned; `None` for never."""
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


class Guard(Protocol):
    """The lease of an owned node, see `eva_worker.runtime.lease_guard.LeaseGuard`."""

    def patience_s(self) -> float | None:
        """Seconds until it is to be looked at again; `None` for at its signal, SIGALRM."""
        ...

    def over(self) -> bool:
        """Whether it has run out, and nothing was done about it yet."""
        ...

    def enforce(self) -> None:
        """Return once no task runs; called without an agent."""
        ...


class _NoGuard:
    """For a worker whose tasks need no lease, or have parents that look after it."""

    def patience_s(self) -> float | None:
        return None

    def over(self) -> bool:
        return False

    def enforce(self) -> None:
        pass


def supervise(settings: Settings, guard: Guard | None = None) -> int:
    """Run the agent, and again whenever it dies, until it has left in good order.

    If an agent dies while it drains the instance, the next one continues to drain it. Only a second
    request to leave is carried out regardless of the tasks.

    An agent that has had no master for too long is asked to leave, whatever the reason. When the
    worker leaves without a signal, the instance is switched off.

    Tasks of a dead agent become children of this process, which collects them, so that no zombies
    remain.

    Returns:
        The agent's exit code.
    """
    configure(instance=settings.instance)
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Signals are blocked and waited for. There is no handler, hence no race with one.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *_TERMINATION})
    watch = _Watch(settings, guard or _NoGuard())
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
        # Even when asked to leave, start an agent once more: it stops tasks that may still run.
        watch.asked += _pause(pause)
        if watch.asked > 1:
            break
    if settings.power_off and not watch.asked:
        _log.warning("switching the instance off", command=settings.power_off)
        subprocess.run(settings.power_off, shell=True, check=False)  # noqa: S602 - the operator's
    return code


class _Watch:
    """Runs one agent after the other, each to its end.

    Args:
        settings: The agents' settings.
        guard: Tells when the lease of an owned node has run out.

    Attributes:
        asked: How often this worker was asked to leave by a signal.
    """

    def __init__(self, settings: Settings, guard: Guard) -> None:
        self._settings = settings
        self._contact = _ContactFile(settings.contact_file, settings.abandoned_after_s)
        self._guard = guard
        self._abandoned_at: float | None = None
        least, most = _FAREWELL_S
        self._farewell_s = min(most, max(least, settings.abandoned_after_s))
        self.asked = 0

    @property
    def hurried(self) -> bool:
        """Whether no other agent may be started, regardless of the tasks."""
        return self.asked > 1 or (self._abandoned_at is not None and self._left_s() == 0)

    def run_agent(self) -> int:
        """Run one agent to its end; returns its exit code."""
        if self._guard.over():
            self._guard.enforce()
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-P", "-m", "eva_worker.agent"],
            os.environ | {ENVIRONMENT: self._settings.to_json(), SUPERVISOR: str(os.getpid())},
            setsid=True,  # The supervisor forwards Ctrl-C itself.
            setsigmask=_TERMINATION,  # Blocked until the agent can handle them.
        )
        if self.asked or self._abandoned_at is not None:
            os.kill(pid, signal.SIGTERM)
        killed = False
        while (code := _reap().get(pid)) is None:
            signaled = _await_signal(None if killed else self._patience_s())
            if signaled in _TERMINATION:
                self.asked += 1
                os.kill(pid, signal.SIGTERM)
            elif not killed and self._guard.over():
                killed = True
                os.kill(pid, signal.SIGKILL)  # A stopped one could start a task when it goes on.
            elif signaled is None and self._left_s() == 0:
                killed = self._abandoned_at is not None
                self._run_out(pid)
        return code

    def _left_s(self) -> float | None:
        """Seconds until an agent without a master is asked to leave or ended; `None` for never."""
        if self._abandoned_at is None:
            return self._contact.left_s()
        return max(0.0, self._abandoned_at + self._farewell_s - time.monotonic())

    def _patience_s(self) -> float | None:
        """Seconds until the next look at contact file and lease; `None` for never."""
        left_s = self._left_s()
        if left_s is not None and self._abandoned_at is None:
            # A contact is dated when it is seen, so looking too rarely would date it too late.
            left_s = min(left_s, self._contact.limit_s / _LOOKS)
        looks = [seconds for seconds in (left_s, self._guard.patience_s()) if seconds is not None]
        return min(looks, default=None)

    def _run_out(self, pid: int) -> None:
        """Handle the end of the time without a master, or of the time to leave in good order."""
        if self._abandoned_at is None:
            self._abandoned_at = time.monotonic()
            _log.error("no master for too long: leaving", after_s=self._contact.limit_s)
            os.kill(pid, signal.SIGTERM)
        else:
            _log.error("some files of tasks are not stored", after_s=self._farewell_s)
            os.kill(pid, signal.SIGKILL)


def _await_signal(within_s: float | None) -> int | None:
    """Wait for a child's end or a request to leave; returns the signal, `None` for none."""
    if within_s is None:
        return signal.sigwait(_WAKING)
    info = signal.sigtimedwait(_WAKING, within_s)
    return info.si_signo if info else None


def _pause(seconds: float) -> int:
    """Wait for some time or until asked to leave; returns how often that was."""
    expiry = time.monotonic() + seconds
    while (left_s := expiry - time.monotonic()) > 0:
        info = signal.sigtimedwait({signal.SIGCHLD, *_TERMINATION}, left_s)
        if info and info.si_signo in _TERMINATION:
            return 1
        _reap()
    return 0


def _reap() -> dict[int, int]:
    """Collect dead children, own and adopted; returns the exit code of each pid."""
    codes: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return codes
        if pid == 0:
            return codes
        codes[pid] = shell_code(os.waitstatus_to_exitcode(status))
