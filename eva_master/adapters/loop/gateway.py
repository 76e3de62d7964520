"""Connects asyncio with the control loop's thread: commands, the newest model, watches."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from eva_master.adapters.loop.subscription import Subscription
from eva_master.model.actions import Reply
from eva_master.model.changes import Changes
from eva_master.model.events import (
    CancelRequested,
    DrainRequested,
    JobSubmitted,
    MoveRequested,
    NodeRequested,
    RemovalRequested,
    ResumeRequested,
    SecretChanged,
    SuspendRequested,
)
from eva_master.ports import Inbox
from eva_master.ports.reading import Pause, ReadModel
from eva_wire.values.errors import StorageFull
from eva_wire.values.ids import JobId

T = TypeVar("T")

Command = (
    JobSubmitted
    | CancelRequested
    | SuspendRequested
    | ResumeRequested
    | DrainRequested
    | NodeRequested
    | MoveRequested
    | SecretChanged
    | RemovalRequested
)

_READERS = 4
_ALL = JobId("")


class LoopGateway:
    """Carries commands to the control loop and replies back; `eva_master.ports.Replies`.

    Reads do not pass through the loop: they use the newest model that it published.
    `command`, `model`, `read` and `watch` belong to asyncio, `latest` to any thread; `reply` and
    `publish` are called by the control loop and never block it.

    Args:
        inbox: The control loop's.
    """

    def __init__(self, inbox: Inbox) -> None:
        self._inbox = inbox
        self._lock = threading.Lock()
        self._waiting: dict[tuple[str, str], list[Future[Reply]]] = {}
        self._watches: dict[Watch, None] = {}
        self._of_job: dict[JobId, dict[Watch, None]] = {}
        """Streams by the job that they watch; by the empty name for streams of all jobs."""
        self._observers: list[Callable[[Changes], None]] = []
        self._model: ReadModel | None = None
        self._first: Future[ReadModel] = Future()
        # Threads of its own: whoever reads a lot holds up other readers, and nobody else.
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="reader")
        self._pause: Pause | None = None
        self.planning: Callable[[], str] = str
        """Note about a plan that takes long; empty if none does."""

    # -- commands --------------------------------------------------------------------------------

    async def command(self, event: Command, *, done: bool = False) -> Reply:
        """Post a user's command and wait for the answer.

        An owner's commands with the same id may overlap: each of them gets the answer.

        Args:
            event: The command.
            done: Whether it tells of what has happened already, so that the control loop takes it
                in however long it stands still.

        Raises:
            EvaError: The command was refused.
        """
        owner = event.spec.owner if isinstance(event, JobSubmitted) else event.owner
        key = owner, event.command
        future: Future[Reply] = Future()
        with self._lock:
            if (pause := self._pause) is not None:
                if done:
                    self._inbox.post(event)
                raise StorageFull(f"nothing can be accepted now: {pause.reason}", hint=pause.hint)
            self._waiting.setdefault(key, []).append(future)
        try:
            self._inbox.post(event)
            reply = await asyncio.wrap_future(future)
        finally:
            self._forget(key, future)
        if reply.error is not None:
            raise reply.error
        return reply

    @property
    def pause(self) -> Pause | None:
        """Why the control loop stands still; `None` while it does not."""
        return self._pause

    def paused(self, pause: Pause | None) -> None:
        """Note that the control loop stands still; any thread may call it.

        Waiting commands are answered, and new ones are refused. Watchers of named jobs are told.

        Args:
            pause: Why, for the user; `None` once it goes on.
        """
        with self._lock:
            news = (self._pause is None) != (pause is None)
            self._pause = pause
            watches = tuple(self._watches) if news else ()
            futures = []
            if pause is not None:
                futures = [future for waiters in self._waiting.values() for future in waiters]
                self._waiting.clear()
        for watch in watches:
            watch.add_named()
        if pause is None:
            return
        error = StorageFull(
            f"this is not on record yet: {pause.reason}",
            hint=f"do not repeat it: it is carried out once there is room. {pause.hint}",
        )
        for future in futures:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)

    def _forget(self, key: tuple[str, str], future: Future[Reply]) -> None:
        with self._lock:
            futures = self._waiting.get(key, [])
            if future in futures:
                futures.remove(future)
                if not futures:
                    del self._waiting[key]

    # -- reading ---------------------------------------------------------------------------------

    def latest(self, timeout_s: float | None = None) -> ReadModel:
        """The newest model of the cluster, for any thread; waits only for the first one.

        Raises:
            TimeoutError: The control loop has not published anything yet.
        """
        return self._first.result(timeout_s) if self._model is None else self._model

    async def model(self) -> ReadModel:
        """The newest model of the cluster, which has everything that was replied before."""
        if self._model is not None:
            return self._model
        return await asyncio.shield(asyncio.wrap_future(self._first))

    async def read(self, fn: Callable[[ReadModel], T]) -> T:
        """Call a function with the newest model, in a thread of its own.

        Use this for calls that would hold up all others; the rest use `model`.
        """
        model, loop = await self.model(), asyncio.get_running_loop()
        return await loop.run_in_executor(self._readers, fn, model)

    def watch(self, jobs: Collection[JobId] | None = None) -> Watch:
        """Begin to collect changed jobs; call it before the first read, so that none is missed.

        Args:
            jobs: Which ones to watch, `None` for all.
        """
        watch = Watch(self, None if jobs is None else frozenset(jobs))
        with self._lock:
            self._watches[watch] = None
            for name in watch.names:
                self._of_job.setdefault(name, {})[watch] = None
        return watch

    def unwatch(self, watch: Watch) -> None:
        """End a watch; harmless when it has ended."""
        with self._lock:
            self._watches.pop(watch, None)
            for name in watch.names:
                of_job = self._of_job.get(name, {})
                of_job.pop(watch, None)
                if not of_job:
                    self._of_job.pop(name, None)

    def observe(self, observer: Callable[[Changes], None]) -> None:
        """Call `observer` with the changes of every commit, in the loop's thread."""
        self._observers.append(observer)

    # -- the control loop's side -----------------------------------------------------------------

    def reply(self, reply: Reply) -> None:
        """Hand a reply to all callers that sent the command and still wait."""
        with self._lock:
            futures = self._waiting.pop((reply.owner, reply.command), ())
        for future in futures:
            if future.set_running_or_notify_cancel():
                future.set_result(reply)

    def publish(self, changes: Changes, model: Callable[[], ReadModel]) -> None:
        """See `eva_master.ports.Replies.publish`."""
        self._model = model()
        if not self._first.done():
            self._first.set_result(self._model)
        if not changes and not changes.explained:
            return
        for observer in self._observers:
            observer(changes)
        if not self._watches:
            return
        changed = changes.of_jobs
        if not changed:
            return
        woken: dict[Watch, set[JobId]] = {}
        with self._lock:
            for name in changed:
                for watch in self._of_job.get(name, ()):
                    woken.setdefault(watch, set()).add(name)
            woken.update(dict.fromkeys(self._of_job.get(_ALL, ()), changed))
        for watch, names in woken.items():
            watch.add(names)


class Watch(Subscription[set[JobId]]):
    """An endless asynchronous iterator of sets of changed jobs.

    Changes are merged while the watch is not iterated, so a slow watcher misses intermediate states
    but never the last one, and holds at most one id per job.

    Attributes:
        names: Jobs to watch.
    """

    def __init__(self, gateway: LoopGateway, jobs: frozenset[JobId] | None) -> None:
        super().__init__(lambda: gateway.unwatch(self))
        self.names = (_ALL,) if jobs is None else tuple(jobs)
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._changed: set[JobId] = set()
        self._awake = asyncio.Event()

    def add(self, changed: set[JobId]) -> None:
        """Note which of the watched jobs changed, some of them; any thread may call it."""
        with self._lock:
            asleep = not self._changed
            self._changed |= changed
        if asleep and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._awake.set)

    def add_named(self) -> None:
        """Note that something is to be told of each job that is watched by name."""
        if names := set(self.names) - {_ALL}:
            self.add(names)

    async def __anext__(self) -> set[JobId]:
        """Wait for changes and take them."""
        while True:
            await self._awake.wait()
            self._awake.clear()
            with self._lock:
                taken, self._changed = self._changed, set()
            if taken:
                return taken
