"""What every way to the workers must do: simulated ones, and real agents over gRPC."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

from eva_lab.simulator.cluster.attempt_log import History
from eva_lab.simulator.cluster.clock import Timeline
from eva_lab.simulator.cluster.cloud import SimulatedInstance
from eva_lab.simulator.cluster.delays import EqualDelays
from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.cluster.workers import SimulatedWorkers
from eva_master.model.actions import (
    FetchFiles,
    ForgetTask,
    StartTask,
    StopTask,
    SyncWorker,
    TaskOrder,
)
from eva_master.model.events import (
    Event,
    Phase,
    ProgressSampled,
    RunReport,
    WorkerFetched,
    WorkerLost,
    WorkerRegistered,
    WorkerReported,
)
from eva_master.model.job import Program
from eva_master.model.resources import Resources
from eva_master.ports import WorkerLink
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId
from tests.fakes.patience import DEADLINE_S
from tests.fakes.rpc.authority import authority
from tests.fakes.rpc.relay import Relay
from tests.fakes.rpc.server import SMALL, RpcMaster, add_instance, rpc_master

T = TypeVar("T")

I1 = InstanceId("i-1")
RUN, OTHER = RunId("job-1/0"), RunId("job-2/0")
CAPACITY = SMALL.type.capacity
GRACE_MS = 20_000
TOTAL_STEPS = 600
CODE = 7
"""What a brief task exits with."""


class Worker(Protocol):
    """One instance's worker, behind a link, and what the tests do to it from outside."""

    link: WorkerLink

    async def event(self) -> Event:
        """The next event that it causes; it must come."""

    async def boot(self) -> None:
        """Start it for the first time."""

    def program(self, run: RunId, *, brief: bool) -> str:
        """What a task is to run: for ever, with a checkpoint when stopped; or as `finish` says."""

    async def ready(self, run: RunId, attempt: int) -> None:
        """Wait until a running task would notice a stop."""

    async def finish(self, run: RunId, attempt: int) -> None:
        """Have a brief task end, whether or not anybody hears of it."""

    def starts(self) -> Counter[tuple[RunId, int]]:
        """How often each attempt was really started."""

    async def cut(self) -> None:
        """Break its session; it cannot come back before `mend`."""

    async def mend(self) -> None:
        """Let it come back."""

    async def redial(self) -> None:
        """Have it open a session while it has one."""

    async def leave(self) -> None:
        """Its instance is to shut down."""


# -- simulated -----------------------------------------------------------------------------------


class Posted:
    """An inbox that only keeps what arrives."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def post(self, event: Event) -> None:
        self.events.append(event)

    def wait(self, until: Millis | None) -> Sequence[Event]:
        raise NotImplementedError("nobody waits")


class SimulatedWorker:
    """A worker in virtual time."""

    def __init__(self) -> None:
        self._timeline = Timeline(Millis(1_000))
        self._inbox = Posted()
        self._work: dict[RunId, Work] = {}
        self.link = SimulatedWorkers(
            self._timeline,
            self._inbox,
            delays=EqualDelays(),
            attempt_log=History(),
            truth=lambda _workload, _others: 1.0,
            work_of=lambda run: self._work[run],
        )

    async def event(self) -> Event:
        while not self._inbox.events:
            assert self._timeline.next() is not None, "nothing will ever happen any more"
            self._timeline.advance()
        return self._inbox.events.pop(0)

    async def boot(self) -> None:
        self.link.boot(SimulatedInstance(I1, SMALL))

    def program(self, run: RunId, *, brief: bool) -> str:
        seconds = 30 if brief else TOTAL_STEPS
        self._work.setdefault(run, Work(seconds * 1000, failures=[CODE] if brief else []))
        return "true"

    async def ready(self, run: RunId, attempt: int) -> None:
        pass

    async def finish(self, run: RunId, attempt: int) -> None:
        pass

    def starts(self) -> Counter[tuple[RunId, int]]:
        return Counter((run, attempt) for run, attempt, _ in self.link.attempt_log.starts)

    async def cut(self) -> None:
        self.link.cut(I1, 120_000)

    async def mend(self) -> None:
        pass

    async def redial(self) -> None:
        self.link.cut(I1, 0)

    async def leave(self) -> None:
        self.link.leave(I1)


# -- over gRPC -----------------------------------------------------------------------------------

_ENDLESS = """
n=$(ls "$EVA_CHECKPOINT_DIR" | sort | tail -1)
next=$(printf %08d $(expr ${n:-0} + 1))
save() {
  mkdir "$EVA_CHECKPOINT_DIR/.new" && echo state > "$EVA_CHECKPOINT_DIR/.new/state"
  mv "$EVA_CHECKPOINT_DIR/.new" "$EVA_CHECKPOINT_DIR/$next"
  exit 143
}
trap save TERM
eva-progress --steps 5 --total TOTAL &
touch up
while :; do sleep 0.02; done
""".replace("TOTAL", str(TOTAL_STEPS))
_BRIEF = f"touch up; until [ -e go ]; do sleep 0.02; done; exit {CODE}"


class RemoteWorker:
    """A worker as it is deployed: supervisor, agent and tasks, behind a relay."""

    def __init__(self, master: RpcMaster, relay: Relay, home: Path) -> None:
        self.link = master.sessions
        self._master = master
        self._relay = relay
        self._home = home
        self._started = home / "started"
        self._process: asyncio.subprocess.Process | None = None
        self._leaving = False

    async def event(self) -> Event:
        return await self._master.loop.event()

    async def boot(self) -> None:
        await self._master.loop.change(lambda state: add_instance(state, I1))
        token = self._master.join_tokens.token(I1, 1)
        tools = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "eva_worker"),
            *("--master", f"127.0.0.1:{self._relay.port}"),
            *("--enrol", f"127.0.0.1:{self._master.ports.users}"),
            *("--ca-file", str(authority().ca_file)),
            *("--instance-id", I1, "--instance-type", SMALL.type.name, "--emulated"),
            *("--cpus", f"{CAPACITY.milli_cpus / 1000:g}"),
            *("--memory-mib", str(CAPACITY.memory_mib)),
            *("--state-dir", str(self._home / "state")),
            env={**os.environ, "EVA_WORKER_TOKEN": token, "PATH": tools},
        )

    async def end(self) -> None:
        """Stop it, and everything below it."""
        if self._process is None:
            return
        if not self._leaving:
            await self.leave()
        async with asyncio.timeout(DEADLINE_S):
            assert await self._process.wait() == 0

    def program(self, run: RunId, *, brief: bool) -> str:
        say = f"echo $EVA_TASK_ID $EVA_ATTEMPT >> {shlex.quote(str(self._started))}\n"
        return say + (_BRIEF if brief else _ENDLESS)

    async def ready(self, run: RunId, attempt: int) -> None:
        await self._file(run, attempt, "work/up", lambda _text: True)

    async def finish(self, run: RunId, attempt: int) -> None:
        self._path(run, attempt, "work/go").touch()
        await self._file(
            run, attempt, "record.json", lambda text: json.loads(text)["stage"] == "exited"
        )

    def starts(self) -> Counter[tuple[RunId, int]]:
        if not self._started.exists():
            return Counter()
        lines = [line.split() for line in self._started.read_text().splitlines()]
        return Counter((RunId(run), int(attempt)) for run, attempt in lines)

    async def cut(self) -> None:
        self._relay.cut()

    async def mend(self) -> None:
        self._relay.mend()

    async def redial(self) -> None:
        self._relay.hang_up_on_callers()

    async def leave(self) -> None:
        assert self._process is not None
        self._leaving = True
        self._process.terminate()

    def _path(self, run: RunId, attempt: int, name: str) -> Path:
        return self._home / "state" / "tasks" / run / f"{attempt:04d}" / name

    async def _file(
        self, run: RunId, attempt: int, name: str, accept: Callable[[str], bool]
    ) -> None:
        path = self._path(run, attempt, name)
        async with asyncio.timeout(DEADLINE_S):
            while not (path.exists() and accept(path.read_text())):
                await asyncio.sleep(0.01)


# -- the tests' view of both ---------------------------------------------------------------------


class Bench:
    """A worker, and everything that has been heard of it."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.events: list[Event] = []

    async def until(self, condition: Callable[[], T | None]) -> T:
        """Take events until there is what is looked for."""
        async with asyncio.timeout(DEADLINE_S):
            while not (found := condition()):
                self.events.append(await self.worker.event())
        return found

    async def next(self, kind: type[T], accept: Callable[[T], bool] = lambda _: True) -> T:
        """The first event of a kind from here on."""
        seen = len(self.events)
        return await self.until(
            lambda: next((e for e in self.events[seen:] if isinstance(e, kind) and accept(e)), None)
        )

    async def registered(self) -> WorkerRegistered:
        """Start the worker and wait for its first session."""
        await self.worker.boot()
        return await self.next(WorkerRegistered)

    def order(self, run: RunId = RUN, attempt: int = 1, *, brief: bool = False) -> TaskOrder:
        program = Program(self.worker.program(run, brief=brief))
        job = JobId(run.partition("/")[0])
        demand = Resources(0, 500, 512)
        return TaskOrder(run, attempt, job, 0, "w", program, demand, GRACE_MS)

    def start(self, order: TaskOrder) -> None:
        self.worker.link.execute(StartTask(I1, order))

    def stop(self, run: RunId = RUN, attempt: int = 1, grace_ms: int = GRACE_MS) -> None:
        self.worker.link.execute(StopTask(I1, run, attempt, grace_ms))

    async def report(self, phase: Phase, run: RunId = RUN, attempt: int = 1) -> RunReport:
        """What is said next of an attempt that is in a phase."""

        def there(event: WorkerReported) -> bool:
            return any(_is(one, run, attempt, phase) for one in event.reports)

        event = await self.next(WorkerReported, there)
        return next(one for one in event.reports if _is(one, run, attempt, phase))

    async def running(self, order: TaskOrder) -> None:
        """Start an attempt and wait until it runs."""
        self.start(order)
        await self.report(Phase.RUNNING, order.run, order.attempt)
        await self.worker.ready(order.run, order.attempt)

    async def exited(self, order: TaskOrder) -> RunReport:
        """Run a brief attempt to its end."""
        await self.running(order)
        await self.worker.finish(order.run, order.attempt)
        return await self.report(Phase.EXITED, order.run, order.attempt)

    async def everything(self, expected: set[tuple[RunId, int]]) -> tuple[RunReport, ...]:
        """Ask for all reports; waits for an answer that lists exactly what is expected."""
        self.worker.link.execute(SyncWorker(I1))
        event = await self.next(
            WorkerReported,
            lambda event: {(one.run, one.attempt) for one in event.reports} == expected,
        )
        return event.reports


def _is(report: RunReport, run: RunId, attempt: int, phase: Phase) -> bool:
    return (report.run, report.attempt, report.phase) == (run, attempt, phase)


@asynccontextmanager
async def remote_worker(home: Path) -> AsyncIterator[RemoteWorker]:
    async with rpc_master(home) as master, Relay(master.ports.workers) as relay:
        worker = RemoteWorker(master, relay, home)
        try:
            yield worker
        finally:
            relay.mend()
            await worker.end()


@pytest.fixture(params=["simulated", "grpc"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    if request.param == "simulated":
        yield Bench(SimulatedWorker())
    else:
        async with remote_worker(tmp_path) as worker:
            yield Bench(worker)


async def test_a_worker_registers_with_what_it_has(bench: Bench) -> None:
    registered = await bench.registered()
    assert registered.instance == I1
    # A real agent measures the disk of its machine as well.
    assert replace(registered.capacity, disk_mib=0) == CAPACITY
    assert registered.reports == ()
    assert registered.session > 0
    assert registered.address


async def test_an_attempt_starts_once_however_often_it_is_said(bench: Bench) -> None:
    await bench.registered()
    order = bench.order(brief=True)
    for _ in range(3):
        bench.start(order)
    await bench.report(Phase.RUNNING)
    await bench.worker.ready(RUN, 1)
    bench.start(order)
    await bench.report(Phase.RUNNING)
    await bench.worker.finish(RUN, 1)
    report = await bench.report(Phase.EXITED)
    assert (report.exit_code, report.stopped, report.never_started) == (CODE, False, False)
    bench.start(order)
    assert await bench.report(Phase.EXITED) == report
    assert bench.worker.starts() == {(RUN, 1): 1}


async def test_an_attempt_that_is_forgotten_or_overtaken_never_starts(bench: Bench) -> None:
    await bench.registered()
    order = bench.order(attempt=3, brief=True)
    await bench.exited(order)
    bench.worker.link.execute(ForgetTask(I1, RUN, 3))
    await bench.everything(set())
    for attempt in (3, 2):
        bench.start(bench.order(attempt=attempt, brief=True))
        report = await bench.report(Phase.EXITED, attempt=attempt)
        assert (report.never_started, report.stopped) == (True, True)
    assert bench.worker.starts() == {(RUN, 3): 1}


async def test_a_stop_overtakes_its_start(bench: Bench) -> None:
    await bench.registered()
    order = bench.order(attempt=2)
    bench.stop(attempt=2)
    report = await bench.report(Phase.EXITED, attempt=2)
    assert (report.never_started, report.stopped, report.exit_code) == (True, True, None)
    bench.start(order)
    again = await bench.report(Phase.EXITED, attempt=2)
    assert (again.never_started, again.stopped) == (True, True)
    # It is listed like any other, until it is forgotten.
    (listed,) = await bench.everything({(RUN, 2)})
    assert (listed.never_started, listed.stopped) == (True, True)
    bench.worker.link.execute(ForgetTask(I1, RUN, 2))
    await bench.everything(set())
    assert bench.worker.starts() == {}
    await bench.running(bench.order(attempt=3))


async def test_a_stop_with_grace_ends_at_a_checkpoint(bench: Bench) -> None:
    await bench.registered()
    await bench.running(bench.order())
    bench.stop()
    report = await bench.report(Phase.EXITED)
    assert (report.stopped, report.exit_code, report.generation) == (True, 143, 1)
    bench.stop()
    assert await bench.report(Phase.EXITED) == report
    # The next attempt goes on from there.
    await bench.running(bench.order(attempt=2))
    bench.stop(attempt=2)
    assert (await bench.report(Phase.EXITED, attempt=2)).generation == 2


async def test_a_stop_without_grace_kills(bench: Bench) -> None:
    await bench.registered()
    await bench.running(bench.order())
    bench.stop(grace_ms=0)
    report = await bench.report(Phase.EXITED)
    assert (report.stopped, report.exit_code, report.generation) == (True, 137, 0)


async def test_a_fetch_is_answered(bench: Bench) -> None:
    await bench.registered()
    order = bench.order()
    for _ in range(2):
        bench.worker.link.execute(FetchFiles(I1, order))
        fetched = await bench.next(WorkerFetched)
        assert (fetched.instance, fetched.run) == (I1, RUN)
    assert bench.worker.starts() == {}


async def test_a_running_attempt_is_not_forgotten(bench: Bench) -> None:
    await bench.registered()
    await bench.running(bench.order())
    bench.worker.link.execute(ForgetTask(I1, RUN, 1))
    (report,) = await bench.everything({(RUN, 1)})
    assert report.phase is Phase.RUNNING


async def test_a_question_is_answered_with_everything(bench: Bench) -> None:
    await bench.registered()
    await bench.running(bench.order())
    exited = await bench.exited(bench.order(OTHER, brief=True))
    found = {report.run: report for report in await bench.everything({(RUN, 1), (OTHER, 1)})}
    assert found[RUN].phase is Phase.RUNNING
    assert found[OTHER] == exited


async def test_a_worker_that_was_cut_off_says_everything_when_it_is_back(bench: Bench) -> None:
    first = await bench.registered()
    await bench.running(bench.order())
    await bench.running(bench.order(OTHER, brief=True))
    await bench.worker.cut()
    lost = await bench.next(WorkerLost)
    assert (lost.instance, lost.session, lost.goodbye) == (I1, first.session, False)
    await bench.worker.finish(OTHER, 1)
    await bench.worker.mend()
    back = await bench.next(WorkerRegistered)
    assert back.session > first.session
    found = {report.run: report for report in back.reports}
    assert found[RUN].phase is Phase.RUNNING
    assert (found[OTHER].phase, found[OTHER].exit_code) == (Phase.EXITED, CODE)
    assert bench.worker.starts() == {(RUN, 1): 1, (OTHER, 1): 1}


async def test_commands_are_dropped_where_there_is_no_session(bench: Bench) -> None:
    await bench.registered()
    await bench.running(bench.order())
    await bench.worker.cut()
    await bench.next(WorkerLost)
    bench.start(bench.order(OTHER))
    bench.stop()
    await bench.worker.mend()
    back = await bench.next(WorkerRegistered)
    assert [(report.run, report.phase) for report in back.reports] == [(RUN, Phase.RUNNING)]
    (report,) = await bench.everything({(RUN, 1)})
    assert (report.phase, report.stopped) == (Phase.RUNNING, False)
    # One for an instance that never was is none of anybody's business.
    bench.worker.link.execute(SyncWorker(InstanceId("i-9")))
    assert bench.worker.starts() == {(RUN, 1): 1}


async def test_a_newer_session_takes_the_place_of_an_older_one(bench: Bench) -> None:
    first = await bench.registered()
    await bench.running(bench.order())
    await bench.worker.redial()
    second = await bench.next(WorkerRegistered)
    assert second.session > first.session
    assert [report.run for report in second.reports] == [RUN]
    seen = len(bench.events)
    bench.stop()
    report = await bench.report(Phase.EXITED)
    assert (report.stopped, report.generation) == (True, 1)
    said = [event for event in bench.events[seen:] if isinstance(event, WorkerReported)]
    assert {event.session for event in said} == {second.session}
    lost = [event.session for event in bench.events if isinstance(event, WorkerLost)]
    assert second.session not in lost


async def test_progress_is_told_unasked(bench: Bench) -> None:
    registered = await bench.registered()
    await bench.running(bench.order())
    steps = 0
    while not steps:  # the first samples may come before the program has said anything
        sampled = await bench.next(ProgressSampled)
        assert (sampled.instance, sampled.session) == (I1, registered.session)
        ((run, attempt, progress),) = sampled.samples
        steps = progress.steps
    assert (run, attempt, progress.total_steps) == (RUN, 1, TOTAL_STEPS)
    assert steps < TOTAL_STEPS
    bench.stop()
    report = await bench.report(Phase.EXITED)
    assert report.progress is not None
    assert report.progress.steps >= progress.steps


async def test_a_worker_that_leaves_stops_its_tasks_and_says_goodbye(bench: Bench) -> None:
    registered = await bench.registered()
    await bench.running(bench.order())
    await bench.worker.leave()
    report = await bench.report(Phase.EXITED)
    assert (report.stopped, report.generation) == (True, 1)
    lost = await bench.next(WorkerLost)
    assert (lost.session, lost.goodbye) == (registered.session, True)
