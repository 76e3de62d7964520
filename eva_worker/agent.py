"""The agent: ``python -m eva_worker.agent``, run by the supervisor with its settings."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import os
import resource
import secrets
import signal
import stat
import sys
from collections.abc import Coroutine, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import grpc
import psutil
import structlog

from eva_wire import VERSION
from eva_wire._proto import worker_pb2 as pb
from eva_wire.service.dumps import leave_no_dumps
from eva_wire.service.logs import configure
from eva_worker.at_once import failure_of
from eva_worker.attach.attachments import Attachments, Dial
from eva_worker.errors import Unprotected
from eva_worker.files.room import disk_mib
from eva_worker.files.storage import SharedStorage, Storage
from eva_worker.files.trash import Trash
from eva_worker.link import notices, wire
from eva_worker.link.address import own_address
from eva_worker.link.enrolment import Enrolment
from eva_worker.link.identity import Identity
from eva_worker.link.notices import InterruptionNotice, Metadata
from eva_worker.link.session import MasterLink, Session
from eva_worker.orders import MergeNews, Welcome
from eva_worker.process.durable_files import read_json, reserve, write_json
from eva_worker.process.metrics import Metrics
from eva_worker.runtime.registry import RuntimeProvider, runtime
from eva_worker.settings import ENVIRONMENT, SUPERVISOR, Settings
from eva_worker.tasks.attempt import Services
from eva_worker.tasks.devices import CpuMap, Devices, discover_gpus, nominal_gpus
from eva_worker.tasks.fence import LeaseFence
from eva_worker.tasks.records import AttemptRecords
from eva_worker.tasks.registry import Tasks

_PR_SET_PDEATHSIG = 1
_GOODBYE_WAIT_S = 10.0
_UNFIT_WAIT_S = 120.0
_HURRY_S = 5.0
"""How long tasks may take to die at the second signal."""
_MILLI = 1000
_OF_NOTICE_FOR_STOPPING = 50
"""Share of the time until an announced end that tasks get to stop in, in per cent."""
_LEAST_GRACE_MS = 1_000
_MOST_FILES = 65_536
_LONGEST_CONFINEMENT = 200

_log = structlog.get_logger()


class Agent:
    """Builds and runs all parts of one worker. Create it in a running event loop.

    Args:
        settings: The worker's settings.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._process = secrets.token_hex(16)
        self._address = settings.address
        self._gpus = _gpus(settings)
        home = settings.state_dir
        self._cluster_file = home / "cluster.json"
        mount = settings.storage_mount
        # Files of other tasks are not for all to read.
        private = [home, *([mount / "jobs"] if mount else [])]
        self._storage = Storage(home / "cache", home / "uploads", private, hidden=settings.hidden)
        self._metrics = Metrics()
        cpus = -(-settings.milli_cpus // _MILLI)
        provider = runtime(settings.runtime)
        self._fence = LeaseFence(
            settings.lease_file,
        )
        self._unfit = _unfit(provider, settings)
        opened = provider.open(settings, home / "runtime")
        self._confinement = opened.confinement[:_LONGEST_CONFINEMENT]
        services = Services(
            runtime=opened,
            records=AttemptRecords(home / "tasks", Trash(home / "trash", reserve.keep)),
            devices=Devices(self._gpus, settings.milli_cpus),
            cpus=CpuMap(settings.instance, cpus, emulated=settings.emulated),
            storage=self._storage,
            metrics=self._metrics,
            base_env=provider.base_env(),
            task_env=settings.task_env,
            attachments=Attachments(opened),
            log_kept=settings.log_kept_mib << 20,
            shared=SharedStorage(mount) if mount else None,
            lease=self._fence.terms,
            tell_merge=self._tell_merge,
        )
        self._identity = Identity.at(settings)
        enrolment = Enrolment(
            self._identity,
            settings.instance,
            join=settings.join,
            token=settings.token,
            authorities=settings.authorities,
        )
        self._link = MasterLink(
            settings.master,
            enrolment,
            self._metrics,
            self._open_session,
            self._enrolled,
            contact=settings.contact_file,
        )
        self._notice: InterruptionNotice | None = None
        self._shutdown_grace_ms: int | None = None
        self._boot: list[tuple[str, int]] = []
        self._metrics_port = settings.metrics_port
        self._tasks = Tasks(services, self._link.report, self._crash)
        self._fence.watch(self._tasks)
        self._leave: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._over = False

    async def run(self) -> None:
        """Serve until told to leave; then leave no task behind.

        Raises:
            Exception: An unforeseen error. Tasks keep running, and the supervisor starts another
                agent.
        """
        try:
            await self._run()
        finally:
            self._over = True

    async def _run(self) -> None:
        await asyncio.to_thread(reserve.keep, self._settings.state_dir / "reserve")
        if saved := await asyncio.to_thread(read_json, self._cluster_file):
            welcome = Welcome.from_json(saved)
            self._configure(welcome)
        elif self._settings.boot_file:
            self._boot = await asyncio.to_thread(_boot_stages, self._settings.boot_file)
        await self._tasks.adopt()
        if self._unfit:
            self.leave(self._unfit)
        link = self._keep(self._keep_link(), "link to the master")
        heeding = self._keep(self._heed_notices(), "watch for notices")
        fencing = self._keep(self._fence.keep(), "watch of the lease")
        reason = await self._leave
        _log.info("leaving once the tasks have stopped and their files are stored", reason=reason)
        await self._tasks.drain(self._left_ms())
        # A master that is away for a moment is to hear how the tasks ended, or that none may run.
        wait_s = _GOODBYE_WAIT_S if self._tasks.reports() else 0.0
        await self._link.say_goodbye(reason, _UNFIT_WAIT_S if self._unfit else wait_s)
        _log.info("left", reason=reason)
        self._over = True
        for task in (link, heeding, fencing):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    async def _keep_link(self) -> None:
        self._address = await own_address(self._settings.address, self._settings.master)
        await self._link.run()

    async def _heed_notices(self) -> None:
        if self._settings.metadata_url:
            await notices.watch(Metadata(self._settings.metadata_url), self._noticed)

    def _noticed(self, notice: InterruptionNotice) -> None:
        """Report a notice of the cloud; leave in time if the cloud takes the instance away."""
        _log.warning("notice from the cloud", reason=notice.reason, at_ms=notice.at_ms)
        self._notice = notice
        self._link.warn(notice)
        if notice.at_ms:
            self.leave(notice.reason)

    def _tell_merge(self, news: MergeNews) -> None:
        self._link.tell_merge(news)

    def _left_ms(self) -> int | None:
        """How long tasks may take to stop; `None` for the grace period of each."""
        if self._notice is None or not self._notice.at_ms:
            return self._shutdown_grace_ms
        # The rest of the time is for uploading their files.
        within = max(self._notice.left_ms() * _OF_NOTICE_FOR_STOPPING // 100, _LEAST_GRACE_MS)
        return within if self._shutdown_grace_ms is None else min(within, self._shutdown_grace_ms)

    async def hurry(self) -> None:
        """Kill all tasks and end this process, though files of tasks are not stored."""
        try:
            async with asyncio.timeout(_HURRY_S):
                await self._tasks.kill()
        finally:
            os._exit(1)

    def leave(self, reason: str) -> None:
        """Begin to drain; `hurry` is for who does not want to wait for that."""
        if not self._leave.done():
            self._leave.set_result(reason)

    @property
    def leaving(self) -> bool:
        """Whether it has begun to drain."""
        return self._leave.done()

    def _crash(self, error: BaseException) -> None:
        if self._over:
            return  # An agent that ends cancels what it still does.
        if not self._leave.done():
            self._leave.set_exception(error)
        else:
            _log.error("attempt failed while leaving", exc_info=error)

    def _keep(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Begin work that this agent cannot be without."""

        def ended(task: asyncio.Task[None]) -> None:
            if error := failure_of(task):
                self._crash(error)

        task = asyncio.create_task(work, name=name)
        task.add_done_callback(ended)
        return task

    def _enrolled(self) -> None:
        """Serve the metrics, now that there is a certificate for their port."""
        if self._metrics_port is None:
            return
        identity, port = self._identity, self._metrics_port
        self._metrics_port = None
        self._metrics.serve(port, certificate=identity.certificate_file, key=identity.key_file)

    def _open_session(self, channel: grpc.aio.Channel, dial: Dial) -> Session:
        return Session(
            channel,
            register=self._register,
            tasks=self._tasks,
            welcomed=self._welcomed,
            notice=lambda: self._notice,
            fence=self._fence,
            dial=dial,
        )

    def _register(self) -> pb.Register:
        settings = self._settings
        return pb.Register(
            instance_id=settings.instance,
            capacity=pb.Resources(
                gpus=len(self._gpus),
                milli_cpus=settings.milli_cpus,
                memory_mib=settings.memory_mib,
                disk_mib=disk_mib(settings.state_dir),
            ),
            tasks=wire.registered(self._tasks.reports()),
            agent_version=VERSION,
            instance_type=settings.instance_type,
            address=self._address,
            boot=wire.boot(self._boot),
            measured_mib=_measured_mib(settings.memory_reserved_mib),
            process=self._process,
            confinement=self._confinement,
            unfit=self._unfit,
        )

    async def _welcomed(self, welcome: Welcome) -> None:
        # Saved before any task starts, so that uploads continue after a restart without a master.
        try:
            await asyncio.to_thread(write_json, self._cluster_file, asdict(welcome))
        except OSError as error:
            _log.error("settings cannot be written down", error=str(error))
        self._configure(welcome)
        self._boot = []

    def _configure(self, welcome: Welcome) -> None:
        self._storage.configure(welcome)
        self._fence.configure(welcome.fence_ms)
        self._shutdown_grace_ms = welcome.shutdown_grace_ms


def _unfit(provider: RuntimeProvider, settings: Settings) -> str:
    """Why no task may run on this instance; empty if tasks may."""
    try:
        provider.protect(settings)
    except Unprotected as error:
        _log.critical("no task may run here", reason=str(error))
        return str(error)
    return ""


def _boot_stages(file: Path) -> list[tuple[str, int]]:
    """The boot stages and their times, as the boot script has written them down, one a line."""
    try:
        lines = file.read_text().splitlines()
        return [(name, int(ms)) for name, ms in map(str.split, lines)]
    except (OSError, ValueError) as error:
        _log.warning("nobody knows how the instance booted", error=str(error))
        return []


def _measured_mib(reserved_mib: int) -> int:
    """MiB for tasks of what the kernel counts; 0 if nobody wants to know."""
    if not reserved_mib:
        return 0
    return max(0, (psutil.virtual_memory().total >> 20) - reserved_mib)


def _gpus(settings: Settings) -> tuple[str, ...]:
    """UUIDs of the GPUs that tasks may use: the stated number, or fewer if there are fewer."""
    if settings.emulated:
        return nominal_gpus(settings.instance, settings.gpus)
    uuids = discover_gpus()
    if len(uuids) < settings.gpus:
        _log.error("fewer GPUs than stated", stated=settings.gpus, found=len(uuids))
    return uuids[: settings.gpus]


def _allow_files() -> None:
    """Allow this process more open files: every task has some, and connections to its socket."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < _MOST_FILES:
        wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextlib.contextmanager
def _alone(state_dir: Path) -> Iterator[None]:
    """Lock the state directory, so that no two agents work on it."""
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    _keep_private(state_dir)
    descriptor = os.open(state_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def _keep_private(state_dir: Path) -> None:
    """Keep other users of the machine out of the state directory.

    Its files are left as they are: those of tasks may belong to the tasks' users.
    """
    mode = state_dir.stat().st_mode
    if not mode & 0o077:
        return
    try:
        if mode & stat.S_ISVTX:
            raise PermissionError("it is for all users")
        state_dir.chmod(stat.S_IMODE(mode) & 0o700)
    except PermissionError as error:
        _log.error(
            "OTHER USERS OF THIS MACHINE READ THE FILES OF ALL TASKS",
            path=str(state_dir),
            reason=str(error),
            hint="give the worker a state directory of its own, of mode 0700",
        )


async def _serve(settings: Settings) -> None:
    agent = Agent(settings)

    hurrying: list[asyncio.Task[None]] = []

    def terminate() -> None:
        if not agent.leaving:
            agent.leave("terminated")
        elif not hurrying:
            _log.warning("leaving at once on the second signal: what is not stored yet is lost")
            hurrying.append(asyncio.get_running_loop().create_task(agent.hurry()))
        else:
            _log.warning("tasks may keep running")
            os._exit(1)

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, terminate)
    # The supervisor blocked these signals until there is a handler.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM, signal.SIGINT})
    await agent.run()


def main() -> int:
    """Run an agent with the settings in the environment; returns the exit code."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    settings = Settings.from_json(os.environ.pop(ENVIRONMENT))
    configure(instance=settings.instance)
    supervisor = os.environ.pop(SUPERVISOR, "")  # earlier releases' say nothing
    if supervisor and os.getppid() != int(supervisor):
        # The supervisor died before this process could ask to die with it; the next cannot start an
        # agent while there is this one.
        _log.error("the supervisor of this agent is gone")
        return 1
    _allow_files()
    leave_no_dumps()
    try:
        with _alone(settings.state_dir):
            asyncio.run(_serve(settings))
    except BlockingIOError:
        _log.error("another agent works on this state directory", path=str(settings.state_dir))
        return 1
    except Exception:
        _log.exception("agent failed")
        return 1
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of the object store may still be busy with its last answer. Python's own end would
    # abort the process then, which the supervisor would take for a crash.
    os._exit(code)
