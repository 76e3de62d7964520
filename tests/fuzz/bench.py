"""Runs made-up tasks as attempts of an agent and checks what must hold whatever they do."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import shutil
import stat
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import grpc

from eva_master.adapters.rpc.workers import messages
from eva_wire._proto import worker_pb2 as master_pb
from eva_worker.attach.attachments import Attachments
from eva_worker.errors import Corrupt
from eva_worker.files.objects import Objects
from eva_worker.files.storage import Storage
from eva_worker.files.trash import Trash
from eva_worker.link import wire
from eva_worker.orders import Order, Phase, Report, TaskKey, Welcome
from eva_worker.process.metrics import Metrics
from eva_worker.runtime import Exit, Image, TaskSpec, Tell
from eva_worker.tasks.attempt import Attempt, Services
from eva_worker.tasks.devices import CpuMap, Devices
from eva_worker.tasks.records import AttemptRecords, Record, Stage
from tests.fakes.patience import DEADLINE_S
from tests.fuzz.tasks import MadeUpTask, make_up

SECRET = b"the host's own, which no task may read"
_RUN = "job-1/0"
_MOST_MESSAGE = 128 << 10
_Say = Callable[[bytes], Awaitable[None]]


class _Refused(Exception):
    """How gRPC ends a call."""


class _Context:
    """As much of gRPC's context as the server needs."""

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise _Refused(code, details)


class _Runtime:
    """A runtime whose tasks are made up."""

    def __init__(self, task: MadeUpTask, host: Path) -> None:
        self._task = task
        self._host = host
        self._spec: TaskSpec | None = None
        self.say: _Say | None = None
        self.killed = False

    confinement = "nothing"

    async def prepare(self, image: Image, tell: Tell) -> str:
        return ""

    async def start(self, spec: TaskSpec) -> None:
        self._spec = spec
        spec.log.touch()

    async def wait(self, key: TaskKey) -> Exit:
        assert self._spec
        assert self.say
        home = self._spec.log.parent
        for act in self._task.acts:
            if self.killed:
                break
            if act.report:
                with contextlib.suppress(_Refused):
                    await self.say(act.report.data)
            elif act.carry_out:
                await asyncio.to_thread(act.carry_out, home, self._host)
            await asyncio.sleep(0)
        code = -9 if self.killed else self._task.code
        return Exit(code, 0, self._task.ran, self._task.message)

    async def stop(self, key: TaskKey, grace_s: float) -> None:
        self.killed = True

    async def kill(self, key: TaskKey) -> None:
        self.killed = True

    async def owns(self, key: TaskKey, pid: int) -> bool:
        return True

    async def adopt(self) -> Sequence[TaskKey]:
        return []

    async def cleanup(self, key: TaskKey) -> None:
        return


class Bench:
    """An agent's attempts, one after the other, beside files of its host.

    Args:
        directory: Where all of it is; best in memory.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._host = directory / "host"
        (self._host / "deep").mkdir(parents=True)
        for name in ("secret", "deep/secret", "outputs", "00000001", "linked"):
            (self._host / name).write_bytes(SECRET)
            (self._host / name).chmod(0o600)
        (self._host / "linked").write_bytes(b"a further name of a file of the task's own user")
        self._before = self._seen()
        self._metrics = Metrics()
        self._trash = Trash(directory / "trash")

    def _seen(self) -> dict[str, tuple[int, int, bytes]]:
        """The host's files: owner, mode and content."""
        return {
            str(path): (path.stat().st_uid, path.stat().st_mode, path.read_bytes())
            for path in self._host.rglob("*")
            if path.is_file()
        }

    def run(self, number: int) -> None:
        """Run one task and its next attempt; raises `AssertionError` with what does not hold."""
        task = make_up(number)
        try:
            asyncio.run(self._run(number, task))
        except BaseException as error:
            acts = "\n  ".join(act.name for act in task.acts)
            error.add_note(f"task {number}: exit {task.code}, gang {task.gang}\n  {acts}")
            raise

    async def _run(self, number: int, task: MadeUpTask) -> None:
        home = self._directory / str(number)
        storage = Storage(home / "cache", home / "uploads", [home])
        storage.configure(Welcome("fuzz", 1_000, (home / "objects").as_uri(), 1))
        runtime = _Runtime(task, self._host)
        services = self._services(home, runtime, storage)
        key, reports = TaskKey(_RUN, 1), list[Report]()
        order = Order(_RUN, 1, "job-1", "true")
        record = Record(key, Stage.PREPARING, order)
        services.records.add(record)
        attempt = Attempt(record, services, reports.append)
        runtime.say = lambda data: attempt._iterator._report(data, _Context())
        async with asyncio.timeout(DEADLINE_S):
            await attempt.live(adopted=False)
        self._check_report(task, attempt.report(), killed=runtime.killed)
        for report in reports:
            _heard(report)
        await self._check_store(storage.objects)
        assert self._seen() == self._before, "the host's files have changed"
        await self._check_next(storage, home)
        await attempt.forget()
        assert not services.records.directory(key).exists(), "files of the attempt are left"
        shutil.rmtree(home)

    def _services(self, home: Path, runtime: _Runtime, storage: Storage) -> Services:
        return Services(
            runtime=runtime,
            attachments=Attachments(runtime),
            records=AttemptRecords(home / "tasks", self._trash),
            devices=Devices((), 1_000),
            cpus=CpuMap("i-1", 1, emulated=True),
            storage=storage,
            metrics=self._metrics,
            base_env={},
            task_env={},
        )

    @staticmethod
    def _check_report(task: MadeUpTask, report: Report, *, killed: bool) -> None:
        assert report.phase is Phase.EXITED
        kinds = [act.report.kind for act in task.acts if act.report]
        if "bad" in kinds:
            assert killed
        if killed:
            assert report.exit_code != 0, "a task that breaks a rule has not failed"
            assert "EVA_SOCKET" in report.message
            assert not {*kinds} <= {"good"}, "a good report was refused"
        _heard(report)

    @staticmethod
    async def _check_store(objects: Objects) -> None:
        async for key in objects.list("jobs"):
            data = await objects.get(key)
            assert SECRET not in data, f"the host's file is stored as {key!r}"
            assert b"root:" not in data, f"the host's file is stored as {key!r}"

    @staticmethod
    async def _check_next(storage: Storage, home: Path) -> None:
        """What was stored harms no later attempt."""
        target = home / "next"
        try:
            generation, steps = await storage.fetcher.checkpoint(_RUN, None, target)
        except Corrupt:
            return  # The task went on writing, too quickly for its times to show it.
        assert 0 <= generation < 2**53
        assert 0 <= steps <= 2**53
        for path in target.rglob("*"):
            mode = path.lstat().st_mode
            assert stat.S_ISREG(mode) or stat.S_ISDIR(mode), path
            assert not mode & (stat.S_ISUID | stat.S_ISGID), path


def _heard(report: Report) -> None:
    """What the master makes of a report."""
    sent = wire.task_report(report).SerializeToString()
    assert len(sent) < _MOST_MESSAGE
    (heard,) = messages.reports([master_pb.TaskReport.FromString(sent)])
    assert heard.generation == report.generation < 2**53
    assert heard.progress is not None
    assert heard.progress.steps == report.progress.steps <= 2**53
    assert dict(heard.progress.metrics) == dict(report.progress.metrics)
    assert len(heard.progress.metrics) <= 256
    assert all(math.isfinite(value) for _, value in heard.progress.metrics)


@contextlib.contextmanager
def in_memory() -> Iterator[Path]:
    """A directory in memory if there is one, since every record of an agent is synced."""
    memory = Path("/dev/shm")
    parent = memory if memory.is_dir() and os.access(memory, os.W_OK) else None
    directory = Path(tempfile.mkdtemp(prefix="eva-", dir=parent))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def open_files() -> int:
    """How many files this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))
