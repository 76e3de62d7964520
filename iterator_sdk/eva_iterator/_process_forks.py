"""Keeps the session whole when the process forks (`os.fork`): a child has no part in it.

Nothing here is about the forks of a training, which are processes on instances of their own.
"""

from __future__ import annotations

import os
import signal
import threading

from eva_iterator import _session

_forking = threading.local()


def _before() -> None:
    # A SIGTERM for the child must not arrive while it still has the parent's handler. A process
    # that forks in the middle of a call may leave its child hanging in grpc's own fork handlers (it
    # does with GRPC_ENABLE_FORK_SUPPORT=1), or wait for them itself.
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    session = _session.started()
    _forking.paused = session is not None and session.pause()


def _after_in_parent() -> None:
    session = _session.started()
    if session is not None and _forking.paused:
        session.resume()
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _after_in_child() -> None:
    _session.begin_child()
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def watch() -> None:
    """Has the session follow every fork of this process from now on."""
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
