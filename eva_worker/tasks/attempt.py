"""The life of one attempt: it is prepared, run and stopped, and its files are uploaded."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import structlog

from eva_worker.at_once import together
from eva_worker.attach.attachments import Attachments, Dial
from eva_worker.errors import StartFailed, StoreUnavailable, WorkerError
from eva_worker.files.objects import persistently
from eva_worker.files.plain.restoring import restore, restore_earlier
from eva_worker.files.plain.uploads import NOTHING
from eva_worker.files.storage import SharedStorage, Storage
from eva_worker.files.upload import LOG_KEPT, Uploader, append_line
from eva_worker.forks import merges
from eva_worker.orders import MergeNews, MergeRound, Order, Phase, Progress, Report
from eva_worker.process.durable_files import reserve
from eva_worker.process.exits import shell_code
from eva_worker.process.metrics import Metrics
from eva_worker.runtime import Exit, Image, Runtime, TaskSpec, timed
from eva_worker.runtime.attaching import AttachRequest
from eva_worker.secret_values import NO_SECRETS, SecretValues
from eva_worker.tasks.devices import Assignment, CpuMap, Devices
from eva_worker.tasks.endings import (
    SuccessNote,
    ended_how,
    filled_by,
    last_words,
    log_tail,
    not_begun,
)
from eva_worker.tasks.hints import hint
from eva_worker.tasks.progress_server import IteratorServer, StepCounters
from eva_worker.tasks.records import AttemptRecords, Began, Record, Stage
from eva_worker.tasks.socket_places import (
    make_socket_directory,
    remove_socket_directory,
    socket_path,
    socket_secret,
)

_FETCH_TRIES = 12
_FENCED = "its node had no master for too long"
_LOST = "the runtime has lost its record"
_DEFAULTS = {"PYTHONUNBUFFERED": "1"}
"""Output is in the log at once, not when a program has filled a buffer: one that is killed loses
that."""
_PHASES = {
    Stage.PREPARING: Phase.STARTING,
    Stage.RUNNING: Phase.RUNNING,
    Stage.CLOSING: Phase.RUNNING,
    Stage.EXITED: Phase.EXITED,
}


@dataclass(frozen=True, slots=True)
class Services:
    """Services and settings that all attempts of a worker share.

    Attributes:
        base_env: Variables that every task inherits from its runtime.
        task_env: Variables that the worker was told to give every task.
        attachments: Commands and connections into tasks.
        log_kept: Bytes of each task's log that stay on the disk once they are stored.
        shared: Storage that all instances share; `None` for none.
        lease: Tells what `TaskSpec.lease` is to be.
        tell_merge: Tells the master of parts and merges.
    """

    runtime: Runtime
    records: AttemptRecords
    devices: Devices
    cpus: CpuMap
    storage: Storage
    metrics: Metrics
    base_env: Mapping[str, str]
    task_env: Mapping[str, str]
    attachments: Attachments
    log_kept: int = LOG_KEPT
    shared: SharedStorage | None = None
    lease: Callable[[], tuple[str, int] | None] = lambda: None
    tell_merge: Callable[[MergeNews], None] = lambda _: None


class Attempt:
    """One attempt, from its order to its exit.

    Args:
        record: Its record.
        services: Services that all attempts share.
        changed: Called whenever there is something to report.
    """

    def __init__(
        self, record: Record, services: Services, changed: Callable[[Report], None]
    ) -> None:
        self.key = record.key
        self._record = record
        self._services = services
        self._changed = changed
        self._saving = asyncio.Lock()
        self._image_ms: int | None = None
        self._stop_asked = asyncio.Event()
        self._secrets: asyncio.Future[SecretValues] = asyncio.get_running_loop().create_future()
        if record.stop_grace_ms is not None:
            self._stop_asked.set()
        directory = services.records.directory(record.key)
        self._directory = directory
        self.log_file = directory / "log"
        self._outputs = directory / "storage" / "outputs"
        self._checkpoints = directory / "checkpoints"
        self._temporary = directory / "tmp"
        self._socket = socket_path(directory)
        self._counters = StepCounters(directory / "progress.json")
        order = record.order
        self._merges = None
        if order is not None:
            self._merges = merges.merges_of(
                order,
                services.storage.objects,
                directory,
                say=services.tell_merge,
                tell=self._tell,
            )
        self._iterator = self._listener()
        self._refusing: asyncio.Task[None] | None = None
        stores = services.shared is None or (order is not None and order.outputs_stored)
        self._uploader = Uploader(
            services.storage.objects,
            record.key,
            gang=order.companions if order else (),
            home=directory,
            log_kept=services.log_kept,
            outputs="storage/outputs" if stores else None,
            memory=directory / "uploads.json",
            steps_kept=self._counters.steps_kept,
            steps=lambda: self._counters.progress().steps,
            count=services.metrics.uploaded_bytes.inc,
            tell=self._tell,
        )
        self._finished = SuccessNote(services.storage.objects, record.key)
        self._log = structlog.get_logger().bind(run=record.key.run, attempt=record.key.attempt)

    def _listener(self) -> IteratorServer:
        return IteratorServer(
            self._socket,
            self._counters,
            self._refuse,
            self._merges,
            owns=lambda pid: self._services.runtime.owns(self.key, pid),
            secret=socket_secret(self._directory),
        )

    def take_secrets(self, secrets: SecretValues) -> None:
        """Take the values of its secrets, unless it has them or needs them no more."""
        order, waits = self._record.order, self._record.stage is Stage.PREPARING
        if order is None or not waits or self._secrets.done():
            return
        if secrets.has(order.secrets):
            self._secrets.set_result(secrets.only(order.secrets))

    def merge(self, order: MergeRound) -> None:
        """Take in what the master says of merges."""
        if self._merges is not None and not self.over:
            self._merges.receive(order)

    @property
    def phase(self) -> Phase:
        """The phase that the master is told."""
        return _PHASES[self._record.stage]

    @property
    def over(self) -> bool:
        """Whether no process of it runs or will run."""
        return self._record.stage in {Stage.CLOSING, Stage.EXITED}

    @property
    def grace_ms(self) -> int:
        """The time that its order gives it between SIGTERM and SIGKILL."""
        return self._record.order.grace_ms if self._record.order else 0

    @property
    def progress(self) -> Progress:
        """The progress of its program."""
        return self._counters.progress()

    def report(self) -> Report:
        """The report on it for the master."""
        record = self._record
        exited = record.stage is Stage.EXITED
        return Report(
            key=self.key,
            phase=self.phase,
            exit_code=record.exit_code if exited else 0,
            never_started=exited and record.never_started,
            stopped=record.stop_grace_ms is not None,
            generation=record.generation,
            progress=self.progress,
            message=record.message,
            blameless=exited and record.blameless,
            not_stored=record.not_stored or self._uploader.not_stored,
            ran_ms=record.ran_by_now_ms(),
            image_ms=self._image_ms,
        )

    async def live(self, *, adopted: bool) -> None:
        """Run the rest of its life, to its end.

        Args:
            adopted: Whether an earlier agent started it.
        """
        if self._record.stage is Stage.EXITED:
            return
        if self._record.stage is Stage.CLOSING:
            # Its exit is on record, whatever has become of the runtime's own record.
            if adopted:
                await self._services.runtime.wait(self.key)
            await self._close()
            return
        if self._record.devices:
            self._services.devices.restore(self.key, self._record.devices)
        started = adopted or await self._start()
        # The task alone keeps the values from now on.
        self._secrets = asyncio.get_running_loop().create_future()
        if started:
            await self._supervise(adopted=adopted)

    async def stop(self, grace_ms: int) -> None:
        """Stop it. Of several calls the earliest end counts. Does nothing once it is over."""
        # Saved first, or the exit that follows would count as a failure.
        async with self._saving:
            if self.over:
                return
            await self._save(stop_grace_ms=grace_ms)
        self._stop_asked.set()
        if self._record.stage is Stage.RUNNING:
            stop = partial(self._services.runtime.stop, self.key)
            await self._services.attachments.stop(self.key, grace_ms / 1000, stop)

    def attach(self, wanted: AttachRequest, dial: Dial) -> None:
        """Answer the master's wish for a command or a connection into it."""
        refusal = ""
        if self._stop_asked.is_set() or self._record.stage is not Stage.RUNNING:
            ending = self._stop_asked.is_set() and not self.over
            refusal = "the task is being stopped" if ending else "the task does not run"
        self._services.attachments.begin(self.key, wanted, dial, refusal)

    async def forget(self) -> None:
        """Remove all of its files and records from this instance."""
        assert self._record.stage is Stage.EXITED
        await self._services.runtime.cleanup(self.key)
        await asyncio.to_thread(remove_socket_directory, self._socket)
        await asyncio.to_thread(self._services.records.remove, self.key)
        await asyncio.to_thread(reserve.keep)

    async def _start(self) -> bool:
        """Prepare it and start it in the runtime; returns whether it runs."""
        if self._record.stage is not Stage.PREPARING:
            await self._end(_LOST, ran=True, blameless=True)
            return False
        preparing = asyncio.create_task(self._prepare())
        stopping = asyncio.create_task(self._stop_asked.wait())
        await asyncio.wait({preparing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if self._stop_asked.is_set():
            preparing.cancel()
            await asyncio.gather(preparing, return_exceptions=True)
            if not self.over:
                await self._end("")
            return False
        try:
            spec = preparing.result()
            if spec is None:
                return False
            await self._services.runtime.start(spec)
        except (WorkerError, OSError) as error:
            by_itself = await asyncio.to_thread(filled_by, self._directory)
            message, blameless = not_begun(error, by_itself)
            await self._end(message, blameless=blameless)
            return False
        except Exception as error:
            # One bad order must not crash the agent again and again.
            self._log.exception("start failed")
            await self._end(f"internal error: {error!r}")
            return False
        await self._update(stage=Stage.RUNNING, began=Began.now())
        self._log.info("task runs")
        return True

    async def _prepare(self) -> TaskSpec | None:
        """Download its files; `None` if there is nothing to run, since it has succeeded before."""
        order = self._record.order
        assert order
        if await self._succeeded_before(order):
            return None
        services = self._services
        devices = self._record.devices
        if devices is None:
            devices = services.devices.assign(self.key, order.gpus, order.milli_cpus)
            await self._update(devices=devices)
        work = self._directory / "work"
        merging = merges.directories(order, self._directory)
        for directory in (work, self._outputs, self._checkpoints, self._temporary, *merging):
            directory.mkdir(parents=True, exist_ok=True)
        shared = services.shared
        elsewhere = (
            await asyncio.to_thread(shared.parts, order, services.storage.roots) if shared else {}
        )
        inputs = {
            name: url for name, url in order.inputs.items() if f"inputs/{name}" not in elsewhere
        }
        place = self._directory / "storage" / "inputs"
        wanted = Image(order.image, order.build, services.storage.fetcher.workdir, order.memory_mib)
        *_, image = await persistently(
            lambda: together(
                (
                    services.storage.fetcher.workdir(order.workdir, work),
                    services.storage.fetcher.inputs(inputs, place),
                    services.storage.outputs(order.outputs, place, shared),
                    self._restore(order),
                    self._image(wanted),
                )
            ),
            tries=_FETCH_TRIES,
            subject=f"files of {self.key}",
        )
        assert image is not None
        make_socket_directory(self._socket, self._directory)
        socket_secret(self._directory, make=True)
        self._iterator = self._listener()
        await self._iterator.start()
        cpus = services.cpus.real(devices.all_cpus)
        env = self._environment(order, devices)
        return TaskSpec(
            self.key,
            order.command,
            env,
            work,
            self.log_file,
            cpus,
            gpus=devices.gpus,
            memory_mib=order.memory_mib,
            image=image,
            elsewhere=elsewhere,
            gang=order.gang is not None,
            lease=services.lease(),
            temporary=self._temporary,
            defaults=_DEFAULTS,
            secrets=await self._secrets if order.secrets else NO_SECRETS,
        )

    async def _image(self, wanted: Image) -> str:
        """Fetch or build its image, and note for how long; see `Runtime.prepare`."""
        image, took_ms = await timed(self._services.runtime.prepare(wanted, self._tell))
        if image:
            self._image_ms = (self._image_ms or 0) + took_ms
        return image

    async def _succeeded_before(self, order: Order) -> bool:
        """Exit at once if an earlier attempt succeeded and the master never heard of it."""
        if order.gang:  # A gang starts over as a whole.
            return False
        earlier = await persistently(
            self._finished.before, tries=_FETCH_TRIES, subject=f"end of {self.key}"
        )
        if earlier is None:
            return False
        number, generation, steps = earlier
        self._counters.begin_from(steps)
        message = f"attempt {number} had succeeded before its instance was lost"
        self._log.info("task not started", reason=message)
        await self._update(stage=Stage.EXITED, generation=generation, message=message)
        return True

    def _tell(self, line: str) -> None:
        """Write a line of the worker into the task's log."""
        with contextlib.suppress(OSError):
            append_line(self.log_file, line)

    def _refuse(self, why: str) -> None:
        """Have the attempt fail, whatever its program does."""
        self._refusing = asyncio.create_task(self._fail(why))

    async def _fail(self, why: str) -> None:
        await asyncio.to_thread(self._tell, f"eva: the task fails: {why}")
        await self._update(refusal=why)
        await self._services.runtime.kill(self.key)

    async def _restore(self, order: Order) -> None:
        storage = self._services.storage
        source = order.checkpoint_of or order.run
        generation, steps = await storage.fetcher.checkpoint(
            source, order.resume, self._checkpoints
        )
        for origin in order.origins if order.resume is None else ():
            if not generation:
                generation, steps = await storage.fetcher.checkpoint(
                    origin, None, self._checkpoints
                )
        plain = NOTHING
        if order.gang or order.resume is None:
            gang = order.companions if order.gang else None
            plain = await restore(storage.objects, self.key, source, gang, self._checkpoints)
        for origin in order.origins:
            if plain == NOTHING:
                size = order.gang.size if order.gang else 1
                plain = await restore_earlier(storage.objects, origin, size, self._checkpoints)
        self._counters.begin_from(steps if generation else plain.steps)
        await self._uploader.began_from(generation, plain)
        await self._update(generation=self._uploader.kept)

    def _environment(self, order: Order, devices: Assignment) -> dict[str, str]:
        gpus = ",".join(devices.gpus)
        return {
            **self._services.base_env,
            **self._services.task_env,
            **order.env,
            **(order.gang.environment if order.gang else {}),
            **merges.environment(order, self._directory),
            "EVA_JOB_ID": order.job,
            "EVA_TASK_ID": order.run,
            "EVA_TASK_INDEX": str(order.index),
            "EVA_TASK_COUNT": str(max(order.tasks, order.index + 1)),
            "EVA_ATTEMPT": str(order.attempt),
            "EVA_STORAGE": str(self._directory / "storage"),
            "EVA_CHECKPOINT_DIR": str(self._checkpoints),
            "EVA_GRACE_SECONDS": f"{order.grace_ms / 1000:g}",
            "EVA_SOCKET": str(self._socket),
            "EVA_SOCKET_SECRET": socket_secret(self._directory),
            "EVA_CPU_COUNT": str(max(1, len(devices.all_cpus))),
            "CUDA_VISIBLE_DEVICES": gpus,
            "NVIDIA_VISIBLE_DEVICES": gpus or "void",
        }

    async def _supervise(self, *, adopted: bool) -> None:
        """Supervise the process, then upload its outputs and checkpoint."""
        if adopted:
            await self._take_over()
        if self._stop_asked.is_set():
            grace_ms = self._record.stop_grace_ms or 0
            await self._services.runtime.stop(self.key, grace_ms / 1000)
        if self._record.refusal:  # The program may break a rule before it is known to run.
            await self._services.runtime.kill(self.key)
        if self._merges is not None:
            self._merges.start()
        over = asyncio.Event()
        uploads = asyncio.create_task(self._upload_until(over))
        try:
            ended = await self._services.runtime.wait(self.key)
        finally:
            over.set()
        self._services.devices.release(self.key)
        if self._refusing:
            await self._refusing
        # Before anything else: what is on the disk no death of a process can undo.
        await self._update(stage=Stage.CLOSING, **await self._exit_of(ended))
        self._log.info("task ended", code=shell_code(ended.code), reason=self._record.message)
        await uploads
        await self._close()

    async def _exit_of(self, ended: Exit) -> dict[str, Any]:
        """The record's changes for an exit."""
        changes: dict[str, Any] = {"exit_code": ended.code, "never_started": not ended.ran}
        if ended.ran:
            measured = ended.ran_ms is not None
            changes["ran_ms"] = ended.ran_ms if measured else self._record.ran_by_now_ms()
        if refusal := self._record.refusal:
            return {**changes, "exit_code": ended.code or 1, "message": refusal}
        if ended.code == 0 and ended.ran and not ended.stopped:
            # The task had come to its end before the stop that was requested meanwhile.
            return {**changes, "stop_grace_ms": None, "message": ended.message}
        message, blameless = ended.message, ended.blameless
        if ended.stopped and self._record.stop_grace_ms is None:
            # Its node was without a master for too long.
            return {**changes, "stop_grace_ms": 0, "message": _FENCED, "blameless": True}
        if ended.code and self._record.stop_grace_ms is None:
            message, blameless = await asyncio.to_thread(self._explained, ended)
        return {**changes, "message": message, "blameless": blameless}

    def _explained(self, ended: Exit) -> tuple[str, bool]:
        """Why a program failed, for its user, and whether the instance is to blame."""
        message, blameless = ended.message, ended.blameless
        by_itself = filled_by(self._directory)
        if not message and by_itself is not None:
            message, blameless = "the disk of its instance is full", not by_itself
        tail = log_tail(self.log_file)
        if said := last_words(tail):
            message = "; ".join(filter(None, [message, f"its log ends: {said}", hint(tail)]))
        return message, blameless

    async def _close(self) -> None:
        """Upload what is left of an attempt that is over, then report its exit."""
        await self._iterator.close()
        await asyncio.to_thread(self._services.records.throw_away, self._temporary)
        if self._merges is not None:
            await self._merges.close()
        try:
            how = ended_how(self._record.exit_code, stopped=self._record.stop_grace_ms is not None)
            await persistently(lambda: self._uploader.all(how), subject=f"remains of {self.key}")
        except Exception as error:
            self._log.exception("upload failed")
            await self._update(
                exit_code=self._record.exit_code or 1,
                message=f"its files cannot be stored, internal error: {error!r}",
            )
        record, generation = self._record, self._uploader.kept
        succeeded = not (record.exit_code or record.never_started)
        if succeeded and record.stop_grace_ms is None:
            await persistently(
                lambda: self._finished.note(generation, self.progress),
                subject=f"end of {self.key}",
            )
        left_out = self._uploader.not_stored
        await self._update(stage=Stage.EXITED, generation=generation, not_stored=left_out)
        self._uploader.close()
        self._log.info("files of the task are stored", generation=generation)

    async def _take_over(self) -> None:
        """Continue with an attempt that an earlier agent started."""
        if self._record.stage is Stage.PREPARING:
            await self._update(stage=Stage.RUNNING, began=Began.now())
        try:
            make_socket_directory(self._socket, self._directory)
            await self._iterator.start()
        except StartFailed as error:
            self._log.error("no more progress from this task", error=str(error))

    async def _upload_until(self, over: asyncio.Event) -> None:
        left_out = ""
        while not await _happens(over, self._services.storage.upload_s):
            try:
                await self._uploader.all(goes_on=lambda: not over.is_set())
            except (StoreUnavailable, OSError) as error:
                self._log.warning("upload failed", error=str(error))
            except Exception:
                # Whatever a task has left there must not end the agent, again and again.
                self._log.exception("upload failed")
            if self._uploader.kept > self._record.generation:
                await self._update(generation=self._uploader.kept)
            elif self._uploader.not_stored != left_out:
                self._changed(self.report())
            left_out = self._uploader.not_stored

    async def _end(self, message: str, *, ran: bool = False, blameless: bool = False) -> None:
        """End an attempt that the runtime does not know."""
        self._services.devices.release(self.key)
        await self._iterator.close()
        await asyncio.to_thread(self._services.records.throw_away, self._temporary)
        try:
            # Messages about its image.
            await persistently(self._uploader.log, tries=_FETCH_TRIES, subject=f"log of {self.key}")
        except (StoreUnavailable, OSError) as error:
            self._log.warning("upload failed", error=str(error))
        await self._update(
            stage=Stage.EXITED,
            never_started=not ran,
            exit_code=-signal.SIGKILL if ran else 0,
            message=message,
            blameless=blameless,
        )
        self._uploader.close()
        self._log.info("task not started", reason=message)

    async def _update(self, **changes: Any) -> None:
        """Save a change of the record, then report it."""
        async with self._saving:
            await self._save(**changes)
        self._changed(self.report())

    async def _save(self, **changes: Any) -> None:
        """Change the record once it is saved; wait while the disk has no room for it."""
        record = replace(self._record, **changes)
        await persistently(
            lambda: asyncio.to_thread(self._services.records.save, record),
            subject=f"record of {self.key}",
        )
        self._record = record


async def _happens(event: asyncio.Event, within_s: float) -> bool:
    try:
        async with asyncio.timeout(within_s):
            await event.wait()
    except TimeoutError:
        return False
    return True
