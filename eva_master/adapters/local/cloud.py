"""The local cloud: each instance is a host process of this machine.

One thread runs one coroutine per instance, from its request to its end, without state shared with
other threads. Files hold what must survive the master; see `records`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import structlog

from eva_master.adapters.bootstrap import Bootstrap
from eva_master.adapters.local import processes
from eva_master.adapters.local.interruptions import drawn_life_ms
from eva_master.adapters.local.records import HostRecord, HostRecords
from eva_master.adapters.local.signals import TAKE_BACK, TAKEN_BACK
from eva_master.model.actions import CloudAction, LaunchInstance, SyncCloud, TerminateInstance
from eva_master.model.events import CloudListed, InstanceGone, InstanceUp, LaunchFailed
from eva_master.ports import Clock, Inbox
from eva_wire.values.errors import EngineUnavailable
from eva_wire.values.ids import InstanceId, Millis, Price

POWER_OFF_S = 2.0
"""Seconds after which a host that was told to switch itself off is killed."""
RETRY_MS = 10_000
"""Pause of an offering after a host could not be started."""
WORKER = (sys.executable, "-P", "-m", "eva_worker")
LOOPBACK = "127.0.0.1"
MIB = 1024 * 1024

_SWEEP_FIRST_S = 0.005
_SWEEP_LONGEST_S = 1.0
_LONGEST_RUN_DIR = 72
_ENGINE_RETRY_S = 1.0

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Containers:
    """The containers that tasks run in, unless they are plain processes.

    Attributes:
        engine: URL of the Docker engine.
        image: Image for tasks that name none; empty for none.
        gateway: Address of this machine in the containers' network; empty if it is the machine's.
    """

    engine: str
    image: str = ""
    gateway: str = ""


@dataclass(frozen=True, slots=True)
class LocalCloudConfig:
    """How the emulated instances behave.

    Attributes:
        launch_delay_ms: Time from the request until the instance runs.
        boot_delay_ms: Time from then until its worker starts.
        read_rate: Bytes per second of an instance's data server.
        read_rates: Rates of single instance types, by name.
        task_env: Added to the environment of every task.
        containers: The containers that tasks run in; `None` for plain processes.
        hidden: Files and directories that tasks which are plain processes must not see, and that
            no input comes from.
        shut_down_ms: How long an instance that is terminated may take to stop its tasks and to
            store their files; then it is switched off.
        notice_ms: How long before its end a spot instance that is taken back has notice of it; 0
            for none.
        spot_life_ms: How long spot instances live on average until they are taken back at random;
            `None` if they are only where somebody asks for it.
        seed: Of what is drawn at random.
    """

    launch_delay_ms: int = 0
    boot_delay_ms: int = 0
    read_rate: int = 64 * MIB
    read_rates: Mapping[str, int] = field(default_factory=dict)
    task_env: Mapping[str, str] = field(default_factory=dict)
    containers: Containers | None = None
    hidden: Sequence[Path] = ()
    shut_down_ms: int = 30_000
    notice_ms: int = 120_000
    spot_life_ms: int | None = None
    seed: int = 1


@dataclass(frozen=True, slots=True)
class BillLine:
    """The bill of one instance.

    Attributes:
        price: Micro-dollars per hour.
        gone_ms: `None` while it is up.
    """

    instance: InstanceId
    type: str
    price: Price
    up_ms: Millis
    gone_ms: Millis | None


@dataclass(frozen=True, slots=True)
class _Life:
    """The running coroutine of an instance, which ends it once `terminating` is set."""

    task: asyncio.Task[None]
    terminating: asyncio.Event


class LocalCloud:
    """Implements `eva_master.ports.Cloud` with processes of this machine.

    Instances outlive this object and the master: another one with the same root finds them.

    Args:
        root: The cloud's own directory: records, logs and disks of the instances. Only one
            local cloud at a time may use it.
        inbox: Where answers are posted.
        clock: Dates the records.
        bootstrap: How workers find and trust the master.
        config: How the instances behave.
        worker_command: Runs a worker; its options are appended.
    """

    def __init__(
        self,
        root: Path,
        inbox: Inbox,
        clock: Clock,
        *,
        bootstrap: Bootstrap,
        config: LocalCloudConfig | None = None,
        worker_command: Sequence[str] = WORKER,
    ) -> None:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        root.chmod(0o700)
        self._files = HostRecords(root.resolve())
        self._inbox = inbox
        self._clock = clock
        self._bootstrap = bootstrap
        self._config = config or LocalCloudConfig()
        self._worker_command = tuple(worker_command)
        self._records = self._files.read()
        self._lives: dict[InstanceId, _Life] = {}
        self._loop = asyncio.new_event_loop()
        self._loop.call_soon(self._recover)
        self._sweeping = asyncio.Lock()
        self._removing = asyncio.Lock()
        self._closing_down = False
        self._hurried = asyncio.Event()
        self._shut_down_ms = self._config.shut_down_ms
        self._thread = threading.Thread(target=self._run, name="local-cloud", daemon=True)
        self._thread.start()

    def execute(self, action: CloudAction) -> None:
        """See `eva_master.ports.Cloud.execute`."""
        self._loop.call_soon_threadsafe(self._handle, action)

    def bill(self) -> list[BillLine]:
        """The bills of all instances that ever ran, read from the files at any time."""
        return [
            BillLine(record.instance, record.type, record.price, record.up_ms, record.gone_ms)
            for record in self._files.read().values()
            if record.up_ms is not None
        ]

    def terminate_all(self, within_ms: int | None = None) -> None:
        """Terminate all instances and wait until they are gone. Nothing is launched after that.

        Args:
            within_ms: How long they may take to shut down, in place of the configured time.
        """
        asyncio.run_coroutine_threadsafe(self._terminate_all(within_ms), self._loop).result()

    def hurry(self) -> None:
        """Switch off at once whatever is shutting down, or ever will; any thread may call it."""
        self._loop.call_soon_threadsafe(self._hurried.set)

    def close(self) -> None:
        """Stop the thread. Instances keep running."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def _run(self) -> None:
        # The runner cancels remaining tasks when the loop is stopped, and closes the loop.
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.get_loop().run_forever()

    def _recover(self) -> None:
        """Continue the life of every instance where the last master left it."""
        for record in self._records.values():
            if not record.closed:
                self._ensure_running(record)

    def _handle(self, action: CloudAction) -> None:
        try:
            match action:
                case LaunchInstance() if self._closing_down:
                    # The master would otherwise replace the instances that end.
                    _log.info("local cloud: closing down, not launched", instance=action.instance)
                case LaunchInstance():
                    self._launch(action)
                case TerminateInstance(instance):
                    self._terminate(instance)
                case SyncCloud():
                    self._list()
        except OSError:
            # Nothing was recorded or done; the master repeats the action.
            _log.exception("local cloud: action failed", action=repr(action))

    def _launch(self, action: LaunchInstance) -> None:
        record = self._records.get(action.instance)
        if record is None or (record.refused and action.attempt > record.attempt):
            record = HostRecord.of_launch(action, self._clock.now())
            self._write(record)
        if record.closed:
            self._post_end(record)
            return
        if record.up_ms is not None:
            self._inbox.post(InstanceUp(record.instance, record.up_ms))
        self._ensure_running(record)

    def _terminate(self, instance: InstanceId) -> None:
        record = self._records.get(instance)
        if record is None:
            record = HostRecord.of_unknown(instance, self._clock.now())
            self._write(record)
        elif record.refused:
            record = replace(record, gone_ms=self._clock.now())
            self._write(record)
        if record.closed:
            self._post_end(record)
        else:
            self._ensure_running(record).terminating.set()

    def _list(self) -> None:
        self._inbox.post(
            CloudListed(
                tuple(
                    (record.instance, record.up_ms)
                    for _, record in sorted(self._records.items())
                    if record.up_ms is not None and record.gone_ms is None
                )
            )
        )

    async def _terminate_all(self, within_ms: int | None) -> None:
        self._closing_down = True
        self._shut_down_ms = self._shut_down_ms if within_ms is None else within_ms
        for record in list(self._records.values()):
            if not record.closed:
                self._terminate(record.instance)
        await asyncio.gather(*(life.task for life in self._lives.values()))
        # An engine may create a container that an agent asked for just before it was killed. This
        # container never starts, and only this cloud will remove it.
        for engine in {record.engine for record in self._records.values()} - {""}:
            await asyncio.to_thread(_remove_containers, engine, self._files.root)

    def _post_end(self, record: HostRecord) -> None:
        if record.gone_ms is not None:
            why = "spot interruption" if record.reclaimed else ""
            self._inbox.post(
                InstanceGone(
                    record.instance, record.up_ms, record.gone_ms, why, reclaimed=record.reclaimed
                )
            )
        else:
            retry_at = Millis(record.requested_ms + RETRY_MS)
            self._inbox.post(LaunchFailed(record.instance, retry_at, record.failed))

    def _ensure_running(self, record: HostRecord) -> _Life:
        """Run the coroutine of an instance unless it runs."""
        life = self._lives.get(record.instance)
        if life is None:
            terminating = asyncio.Event()
            course = self._guarded(record.instance, self._live(record, terminating))
            life = self._lives[record.instance] = _Life(self._loop.create_task(course), terminating)
        return life

    async def _guarded(self, instance: InstanceId, life: Coroutine[Any, Any, None]) -> None:
        try:
            await life
        except Exception:
            # The next action on it, or the next master, continues with it.
            _log.exception("local cloud: an instance's coroutine failed", instance=instance)
        finally:
            del self._lives[instance]

    async def _live(self, record: HostRecord, terminating: asyncio.Event) -> None:
        """Run an instance from its present stage to its end."""
        if record.up_ms is None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(terminating.wait(), self._delay_left_s(record))
            if not terminating.is_set():
                record = self._start(record)
            if record.failed:
                return
        if record.pid is not None and record.birth is not None:
            await self._watch(record, record.pid, record.birth, terminating)
        await self._clear(record)
        # The wall clock may be set back, but an instance must not be gone before it runs.
        gone_ms = max(self._clock.now(), record.up_ms or Millis(0))
        taken = (self._files.directory(record.instance) / TAKEN_BACK).exists()
        record = replace(record, gone_ms=gone_ms, reclaimed=taken)
        self._write(record)
        self._post_end(record)

    def _delay_left_s(self, record: HostRecord) -> float:
        up_at = record.requested_ms + self._config.launch_delay_ms
        return max(0, up_at - self._clock.now()) / 1000

    def _start(self, record: HostRecord) -> HostRecord:
        """Start the host of a pending instance, and let it run once it is recorded."""
        try:
            gate = self._spawn(record)
        except OSError as error:
            record = replace(record, failed=f"cannot start a host process: {error}")
            self._write(record)
            self._post_end(record)
            return record
        try:
            up_ms = self._clock.now()
            containers = self._config.containers
            record = replace(
                record,
                pid=gate.pid,
                birth=processes.birth(gate.pid),
                up_ms=up_ms,
                engine=containers.engine if containers else "",
            )
            self._write(record)
        except OSError:
            gate.close()
            raise
        gate.open()
        self._inbox.post(InstanceUp(record.instance, up_ms))
        return record

    def _spawn(self, record: HostRecord) -> processes.Gate:
        directory = self._files.directory(record.instance)
        (directory / "disk").mkdir(mode=0o700, exist_ok=True)
        containers = self._config.containers
        rate = self._config.read_rates.get(record.type, self._config.read_rate)
        host = [
            *(sys.executable, "-P", "-m", "eva_master.adapters.local.host"),
            *("--rate", str(rate)),
            *("--boot-delay-ms", str(self._config.boot_delay_ms)),
            *("--directory", str(directory)),
            *("--data-address", (containers and containers.gateway) or LOOPBACK),
            *(("--spot-notice-ms", str(self._config.notice_ms)) if record.is_spot else ()),
            "--",
        ]
        worker = [
            *self._worker_command,
            *self._bootstrap.options(),
            *("--instance-id", record.instance),
            *("--instance-type", record.type),
            *("--gpus", str(record.capacity.gpus)),
            *("--cpus", _thousandths(record.capacity.milli_cpus)),
            *("--memory-mib", str(record.capacity.memory_mib)),
            *("--state-dir", str(directory / "disk")),
            "--emulated",
        ]
        for name, value in self._config.task_env.items():
            worker += ["--task-env", f"{name}={value}"]
        if containers:
            worker += ["--runtime", "docker", "--docker-host", containers.engine]
            worker += ["--docker-image", containers.image] if containers.image else []
        if self._config.hidden:
            worker += ["--hidden", os.pathsep.join(map(str, self._config.hidden))]
        environment = {
            **os.environ,
            **self._bootstrap.environment(record.instance, record.attempt),
            **_short_run_dir(directory / "disk"),
            processes.MARK: self._mark(record.instance),
        }
        return processes.spawn([*host, *worker], environment, directory / "host.log")

    def _mark(self, instance: InstanceId) -> str:
        return f"{instance}@{self._files.root}"

    async def _watch(
        self, record: HostRecord, pid: int, birth: str, terminating: asyncio.Event
    ) -> None:
        """Wait until a host has ended, by itself or because it was switched off."""
        host = processes.Handle.take(pid, birth)
        if host is None:
            return
        market = asyncio.create_task(self._take_back(record, host))
        try:
            await _either(host.exited, terminating)
            await self._signal(host, self._hurried, self._shut_down_ms / 1000)
            await self._signal(host, asyncio.Event(), POWER_OFF_S)
            if not host.exited.is_set():
                host.kill(signal.SIGKILL)
                await host.exited.wait()
        finally:
            market.cancel()
            host.close()

    async def _take_back(self, record: HostRecord, host: processes.Handle) -> None:
        """Take a spot instance back when its time has come, if that is drawn at random."""
        mean_ms = self._config.spot_life_ms
        if mean_ms is None or not record.is_spot or record.up_ms is None:
            return
        end_ms = record.up_ms + drawn_life_ms(record.instance, mean_ms, self._config.seed)
        await asyncio.sleep(max(0, end_ms - self._clock.now()) / 1000)
        host.kill(TAKE_BACK)

    @staticmethod
    async def _signal(host: processes.Handle, hurried: asyncio.Event, within_s: float) -> None:
        """Have a host shut down or, the second time, switch itself off, unless it has ended."""
        if not host.exited.is_set():
            host.kill(signal.SIGTERM)
            host.kill(signal.SIGCONT)  # A process that is stopped heeds no other signal.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await _either(host.exited, hurried)

    async def _clear(self, record: HostRecord) -> None:
        """Remove everything of an instance, including its disk."""
        pause = _SWEEP_FIRST_S
        while True:
            async with self._sweeping:
                if await asyncio.to_thread(processes.clear, self._mark(record.instance)):
                    break
            await asyncio.sleep(pause)
            pause = min(2 * pause, _SWEEP_LONGEST_S)
        disk = self._files.directory(record.instance) / "disk"
        if record.engine:
            await self._clear_engine(record, disk)
        await asyncio.to_thread(processes.remove_groups, disk / "groups.json")
        await asyncio.to_thread(processes.remove_disk, disk)

    async def _clear_engine(self, record: HostRecord, disk: Path) -> None:
        """Remove all containers of an instance, even if the engine is away for long.

        Its agent is dead by now, so no new one is started.
        """
        while True:
            # One at a time, so that an engine that hangs does not occupy all threads.
            async with self._removing:
                cleared = await asyncio.to_thread(_remove_containers, record.engine, disk)
            if cleared:
                return
            await asyncio.sleep(_ENGINE_RETRY_S if cleared is None else _SWEEP_FIRST_S)

    def _write(self, record: HostRecord) -> None:
        self._files.write(record)
        self._records[record.instance] = record


def _remove_containers(url: str, directory: Path) -> bool | None:
    """Remove the containers of workers whose state is below a directory.

    Returns:
        Whether there were none; `None` if the engine does not answer.
    """
    from eva_master.adapters.local.engine import (
        Engine,  # Imported here because it is slow and rarely needed.
    )

    try:
        with Engine(url) as engine:
            return engine.remove_containers(directory)
    except EngineUnavailable as error:
        _log.warning(
            "local cloud: cannot remove containers",
            directory=str(directory),
            reason=error.message,
        )
        return None


def _short_run_dir(disk: Path) -> dict[str, str]:
    """Put the worker's sockets on the instance's disk if their names are short enough.

    The name of a socket has at most 107 bytes, of which the worker needs some.
    """
    run = disk / "run"
    if len(os.fsencode(run)) > _LONGEST_RUN_DIR:
        return {}
    run.mkdir(mode=0o700, exist_ok=True)
    return {"XDG_RUNTIME_DIR": str(run)}


async def _either(*events: asyncio.Event) -> None:
    """Wait for the first of some events."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _thousandths(number: int) -> str:
    """Write a number of thousandths in full."""
    return f"{number // 1000}.{number % 1000:03}"
