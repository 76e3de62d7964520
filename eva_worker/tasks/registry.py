"""All attempts of this worker and the commands on them. Each command may be repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from eva_worker.at_once import failure_of, together
from eva_worker.attach.attachments import Dial
from eva_worker.errors import WorkerError
from eva_worker.files.objects import persistently
from eva_worker.orders import MergeRound, Order, Phase, Progress, Report, TaskKey
from eva_worker.runtime import Image, timed
from eva_worker.runtime.attaching import AttachRequest
from eva_worker.secret_values import NO_SECRETS, SecretValues
from eva_worker.tasks.attempt import Attempt, Services
from eva_worker.tasks.records import Record, Stage
from eva_worker.tasks.socket_places import remove_abandoned

_FETCH_TRIES = 5
_POLL_S = 0.05
_DRAINING = "the instance takes no more tasks"

_log = structlog.get_logger()


class Tasks:
    """The attempts that this worker knows, from their order until they are forgotten.

    Args:
        services: Services that all attempts share.
        changed: Called at every change of an attempt.
        crashed: Called with the reason why an attempt's life ended before its end: an unforeseen
            error, or a cancellation, after which nobody would hear of the task's exit.
    """

    def __init__(
        self,
        services: Services,
        changed: Callable[[Report], None],
        crashed: Callable[[BaseException], None],
    ) -> None:
        self._services = services
        self._changed = changed
        self._crashed = crashed
        self._attempts: dict[TaskKey, Attempt] = {}
        self._lives: dict[TaskKey, asyncio.Task[None]] = {}
        self._draining = False
        services.metrics.watch_tasks(self._count)

    async def adopt(self) -> None:
        """Take over the attempts of earlier agents, both running and exited ones."""
        await asyncio.to_thread(remove_abandoned)
        adopted_keys = set(await self._services.runtime.adopt())
        for record in await asyncio.to_thread(self._services.records.load):
            self._begin(record, adopted=record.key in adopted_keys)
        for key in adopted_keys - self._attempts.keys():
            # The attempt was forgotten, but the agent died before all of it was removed.
            await self._services.runtime.kill(key)
            await self._services.runtime.wait(key)
            await self._services.runtime.cleanup(key)

    async def start(self, order: Order, secrets: SecretValues = NO_SECRETS) -> None:
        """Start an attempt unless it, or a later one of its task run, was seen before.

        Args:
            order: The order.
            secrets: Values of the secrets that it names. One that waits for them, since an agent
                before this one had them, takes these.
        """
        if order.attempt <= self._services.records.highest(order.run):
            if attempt := self._attempts.get(order.key):
                attempt.take_secrets(secrets)
            self._repeat(order.key)
        elif self._draining:
            # Stopped as it leaves, like those that run: nobody's failure.
            await self._refuse(
                Record(
                    order.key,
                    Stage.EXITED,
                    order,
                    stop_grace_ms=0,
                    never_started=True,
                    message=_DRAINING,
                )
            )
        else:
            await self._add(Record(order.key, Stage.PREPARING, order), secrets)

    async def stop(self, key: TaskKey, grace_ms: int) -> None:
        """Stop an attempt. One that is unknown here is refused from now on."""
        if attempt := self._attempts.get(key):
            if attempt.over:
                self._changed(attempt.report())
            else:
                await attempt.stop(grace_ms)
        elif key.attempt <= self._services.records.highest(key.run):
            self._repeat(key)
        else:
            await self._refuse(
                Record(key, Stage.EXITED, never_started=True, stop_grace_ms=grace_ms)
            )

    def merge(self, key: TaskKey, order: MergeRound) -> None:
        """Pass on what the master says of merges to a task, if it runs here."""
        if attempt := self._attempts.get(key):
            attempt.merge(order)

    def attach(self, key: TaskKey, wanted: AttachRequest, dial: Dial) -> None:
        """Answer the master's wish for a command or a connection into an attempt."""
        if attempt := self._attempts.get(key):
            attempt.attach(wanted, dial)
        else:
            self._services.attachments.begin(key, wanted, dial, "the task does not run here")

    def detach(self, name: str) -> None:
        """End a command or a connection whose user has gone; does nothing if it is over."""
        self._services.attachments.leave(name)

    def disturbed(self) -> bool:
        """Whether a user was in a task since the last call."""
        return self._services.attachments.disturbed()

    async def forget(self, key: TaskKey) -> None:
        """Drop an exited attempt; its number stays seen."""
        attempt = self._attempts.get(key)
        if attempt and attempt.phase is Phase.EXITED:
            del self._attempts[key]
            await self._lives.pop(key)
            await attempt.forget()

    async def fetch(self, order: Order) -> tuple[str, int | None]:
        """Fetch an order's files and image.

        Returns:
            Description of the failure, empty if there was none; and the milliseconds that the image
            took, `None` without one.
        """
        fetcher, prepare = self._services.storage.fetcher, self._services.runtime.prepare
        image = Image(order.image, order.build, fetcher.workdir, order.memory_mib)
        image_ms: int | None = None

        async def ready() -> None:
            nonlocal image_ms
            name, took_ms = await timed(prepare(image, tell))
            image_ms = (image_ms or 0) + took_ms if name else None

        def tell(line: str) -> None:
            _log.info(line, run=order.run, attempt=order.attempt)

        try:
            await persistently(
                lambda: together((fetcher.prefetch(order.workdir), ready())),
                tries=_FETCH_TRIES,
                subject=f"files of {order.key}",
            )
        except (WorkerError, OSError) as error:
            return str(error), None
        return "", image_ms

    async def drain(self, within_ms: int | None = None) -> None:
        """Start no more attempts, stop all, and wait until their files are stored.

        Args:
            within_ms: Upper limit of each task's grace period; `None` for no limit.
        """
        self._draining = True
        for key, attempt in list(self._attempts.items()):
            limits = (attempt.grace_ms, within_ms)
            await attempt.stop(min(limit for limit in limits if limit is not None))
            _log.info("draining", run=key.run, attempt=key.attempt)
        await asyncio.gather(*self._lives.values())

    async def stop_all(self, within_ms: int) -> None:
        """Stop all attempts, each with its own grace period or less; more may be started later."""
        for attempt in list(self._attempts.values()):
            await attempt.stop(min(attempt.grace_ms, within_ms))

    def longest_grace_ms(self) -> int:
        """The longest grace period of the attempts that are not over."""
        return max(
            (attempt.grace_ms for attempt in self._attempts.values() if not attempt.over), default=0
        )

    async def kill(self) -> None:
        """Kill all tasks, and return when no process of any is left. Files are not stored."""
        for attempt in list(self._attempts.values()):
            await attempt.stop(0)
        while not all(attempt.over for attempt in self._attempts.values()):
            await asyncio.sleep(_POLL_S)

    def reports(self) -> list[Report]:
        """The reports on all attempts."""
        return [attempt.report() for _, attempt in sorted(self._attempts.items())]

    def progress(self) -> Mapping[TaskKey, Progress]:
        """The progress of each running attempt."""
        return {
            key: attempt.progress
            for key, attempt in self._attempts.items()
            if attempt.phase is Phase.RUNNING
        }

    def log_of(self, copy: str) -> tuple[Path, Callable[[], bool]] | None:
        """The log of a task run's latest attempt here, and what tells whether it is complete.

        Returns:
            `None` if no attempt of the task run is known.
        """
        keys = [key for key in self._attempts if key.run == copy]
        if not keys:
            return None
        attempt = self._attempts[max(keys)]
        return attempt.log_file, lambda: attempt.over

    def _begin(self, record: Record, secrets: SecretValues = NO_SECRETS, *, adopted: bool) -> None:
        attempt = Attempt(record, self._services, self._changed)
        attempt.take_secrets(secrets)
        self._attempts[record.key] = attempt
        self._changed(attempt.report())
        life = asyncio.create_task(attempt.live(adopted=adopted), name=f"life of {record.key}")
        life.add_done_callback(self._ended)
        self._lives[record.key] = life

    def _ended(self, life: asyncio.Task[None]) -> None:
        if error := failure_of(life):
            self._crashed(error)

    async def _refuse(self, record: Record) -> None:
        """Record an attempt that will never be started."""
        await self._add(record)

    async def _add(self, record: Record, secrets: SecretValues = NO_SECRETS) -> None:
        """Add an attempt. If the disk has no room for its record, it is refused."""
        try:
            await asyncio.to_thread(self._services.records.add, record)
        except OSError as error:
            _log.error("attempt cannot be recorded", key=str(record.key), error=str(error))
            message = f"the disk of its instance fails: {error.strerror}"
            stopped = record.stop_grace_ms is not None
            self._changed(
                Report(
                    record.key,
                    Phase.EXITED,
                    never_started=True,
                    stopped=stopped,
                    message=message,
                    blameless=True,
                )
            )
        else:
            self._begin(record, secrets, adopted=False)

    def _repeat(self, key: TaskKey) -> None:
        """Report the state of a seen attempt again. One that is no longer listed does not run."""
        attempt = self._attempts.get(key)
        self._changed(
            attempt.report()
            if attempt
            else Report(key, Phase.EXITED, never_started=True, stopped=True)
        )

    def _count(self, phase: Phase) -> int:
        return sum(attempt.phase is phase for attempt in self._attempts.values())
