"""Keeps the agent running. Small, so that there is little in it to fail."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

import structlog

from eva_worker.backoff import Backoff
from eva_worker.log import configure
from eva_worker.settings import ENVIRONMENT, Settings

_PR_SET_CHILD_SUBREAPER = 36
_SETTLED_S = 60.0
_TERMINATION = {signal.SIGTERM, signal.SIGINT}

_log = structlog.get_logger()


def supervise(settings: Settings) -> int:
    """Run the agent, again whenever it dies, until it has left in good order.

    An agent that dies while it empties the instance is followed by one that goes on with it; only
    a second request to leave is carried out whatever becomes of the tasks.

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
    backoff = Backoff(jitter=False)
    asked = 0
    while True:
        began = time.monotonic()
        code, asked = _run_agent(settings, asked)
        if code == 0 or asked > 1:
            return abs(code)
        if time.monotonic() - began >= _SETTLED_S:
            backoff.reset()
        pause = backoff.next_s()
        _log.warning("agent died", code=code, again_in_s=pause)
        # Asked to leave, there must be an agent once more: tasks may run, which it stops.
        asked += _pause(pause)
        if asked > 1:
            return abs(code)


def _run_agent(settings: Settings, asked: int) -> tuple[int, int]:
    """Run one agent to its end.

    Args:
        settings: For the agent.
        asked: How often this worker was asked to leave; if at all, the agent is, at once.

    Returns:
        The agent's exit code, and how often this worker was asked by then.
    """
    pid = os.posix_spawn(
        sys.executable,
        [sys.executable, "-P", "-m", "eva_worker.agent"],
        os.environ | {ENVIRONMENT: settings.to_json()},
        setsid=True,  # A Ctrl-C is the supervisor's to forward.
        setsigmask=_TERMINATION,  # Until it can handle them.
    )
    if asked:
        os.kill(pid, signal.SIGTERM)
    while (code := _reap().get(pid)) is None:
        if signal.sigwait({signal.SIGCHLD, *_TERMINATION}) in _TERMINATION:
            asked += 1
            os.kill(pid, signal.SIGTERM)
    return code, asked


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
