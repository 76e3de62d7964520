"""The connection of a process to its agent."""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Callable
from multiprocessing import current_process, parent_process, util
from pathlib import Path
from typing import TYPE_CHECKING

from eva_iterator import _checkpoints
from eva_iterator._progress import Progress
from eva_iterator._stop import Stop

if TYPE_CHECKING:
    from eva_iterator._forks.fork import Fork
    from eva_iterator._forks.link import ForkLink
    from eva_iterator._reporter import Reporter

SOCKET_VARIABLE = "EVA_SOCKET"
MERGE_VARIABLE = "EVA_MERGE_DIR"
BESIDE_VARIABLE = "EVA_EXEC"
"""Set in commands beside a task (`eva exec`), which share its files."""
GRPC_HOOKS_VARIABLE = "GRPC_ENABLE_FORK_SUPPORT"

checkpoint_directory = _checkpoints.directory


def publication_directory() -> Path | None:
    """Where this process may publish, None outside Eva and beside a task.

    A state that a command beside a task has made is no checkpoint of the task.
    """
    return None if os.environ.get(BESIDE_VARIABLE) else checkpoint_directory()


class AgentSession:
    """The state of the process's connection to its agent.

    Attributes:
        active: Whether this process talks to an agent; False outside Eva and in workers.
        progress: Progress of the process.
        stop: Whether it was asked to stop.
        fork: Fork of a job with several forks, None in other jobs.
        unsaved: Publishes the checkpoint of the last loop that ended with steps unsaved, None if
            no loop did since the last checkpoint.
    """

    def __init__(self, socket: str | None) -> None:
        """Starts to report.

        Args:
            socket: Path of the agent's Unix socket, None outside Eva.
        """
        self.active = bool(socket)
        self.progress = Progress()
        self.stop = Stop()
        self.unsaved: Callable[[], None] | None = None
        self.fork = _make_fork(self) if socket else None
        self._reporter: Reporter | None = None
        if socket:
            link = None if self.fork is None else self.fork.link
            self._reporter = _make_reporter(socket, self.progress, link)
            self._reporter.start()
            _at_exit(self.close)

    @property
    def stopping(self) -> bool:
        """Whether the program is to end, since it was asked to stop or its job needs it no more."""
        return self.stop.requested or (self.fork is not None and self.fork.dismissed)

    def publish(self, save: Callable[[Path], object]) -> int:
        """Publishes a checkpoint; returns its generation, or 0 without calling `save` outside Eva.

        Raises:
            OSError: The checkpoint cannot be written.
        """
        directory = publication_directory()
        if directory is None:
            return 0
        generation = _checkpoints.publish(directory, save)
        if self.active:
            self.progress.saved(generation)
            self.unsaved = None
            self.wake()
        return generation

    def wake(self) -> None:
        """Makes the reporter look at the progress now."""
        if self._reporter is not None:
            self._reporter.wake()

    def close(self) -> None:
        """Sends the last report, in bounded time."""
        if self._reporter is not None:
            self._reporter.close(stopping=self.stop.requested)

    def pause(self) -> bool:
        """Keeps the reporter from calling until `resume`; returns whether it does."""
        return self._reporter is not None and self._reporter.pause()

    def resume(self) -> None:
        """Undoes a successful `pause`."""
        if self._reporter is not None:
            self._reporter.resume()

    def abandon(self) -> None:
        """Disables the copy in a child process, which has neither the thread nor the signal."""
        self.active = False
        self.fork = None
        self._reporter = None
        self.stop.abandon()


def _make_fork(session: AgentSession) -> Fork | None:
    if not os.environ.get(MERGE_VARIABLE):
        return None
    from eva_iterator._forks.fork import Fork
    from eva_iterator._forks.link import place_in

    place = place_in(os.environ)
    return None if place is None else Fork(place, session)


def _make_reporter(socket: str, progress: Progress, link: ForkLink | None) -> Reporter:
    # Imported here, so that programs outside Eva do not import grpc, and on the caller's thread,
    # since a process that forks while another thread imports a module leaves its child unable to
    # import it. By default grpc's core hooks into every fork of the process, which slows it down
    # and makes some versions abort. A program that needs that can enable it in its environment.
    unset = GRPC_HOOKS_VARIABLE not in os.environ
    os.environ.setdefault(GRPC_HOOKS_VARIABLE, "0")
    try:
        from eva_iterator._reporter import Reporter

        return Reporter(socket, progress, _newest_generation, link)
    finally:
        if unset:
            del os.environ[GRPC_HOOKS_VARIABLE]


def _newest_generation() -> int:
    directory = checkpoint_directory()
    return 0 if directory is None else _checkpoints.newest(directory)


def _at_exit(close: Callable[[], None]) -> None:
    if parent_process() is None:
        atexit.register(close)
    else:
        # Children made by multiprocessing leave through os._exit, past atexit.
        util.Finalize(None, close, exitpriority=0)


def _agent_socket() -> str | None:
    # A daemonic process is a helper of another one, such as a data loader's worker, forked or
    # spawned; processes that train are not daemonic, be they made by multiprocessing or not.
    return None if current_process().daemon else os.environ.get(SOCKET_VARIABLE)


_session: AgentSession | None = None
_creating = threading.Lock()


def current() -> AgentSession:
    """The session of this process, started when first asked for."""
    global _session
    if _session is None:
        with _creating:
            if _session is None:
                _session = AgentSession(_agent_socket())
    return _session


def started() -> AgentSession | None:
    """The session of this process, None if nothing has asked for it."""
    return _session


def begin_child() -> None:
    """Gives a child process, which is a copy of this one, a state without session of its own."""
    global _creating
    _creating = threading.Lock()
    if _session is not None and _session.active:
        _session.abandon()
