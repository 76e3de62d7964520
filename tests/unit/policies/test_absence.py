"""What is heard of a worker that was away."""

from __future__ import annotations

from dataclasses import replace

from eva_master.control.machine import Machine
from eva_master.control.measure import ledger
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.actions import RequestPlan
from eva_master.model.events import Phase, ProgressSampled, RunReport, WorkerLost, WorkerRegistered
from eva_master.model.progress import Progress
from eva_master.model.records import Instance, Job, TaskRun
from eva_wire.values.ids import MILLION, InstanceId, JobId, Millis, RunId
from tests.fakes.jobs import CATALOG, LARGE, job, task
from tests.fakes.learned.lessons import lessons_of

BOX = InstanceId("box")
COPIES = (RunId("j0/0"), RunId("j1/0"))
WINDOW_MS = 10_000
RATE = 10


def _registered(session: int, steps: int) -> WorkerRegistered:
    reports = tuple(RunReport(it, 1, Phase.RUNNING, progress=Progress(steps)) for it in COPIES)
    return WorkerRegistered(BOX, session, LARGE.type.capacity, reports)


def _sampled(session: int, steps: int) -> ProgressSampled:
    return ProgressSampled(BOX, session, tuple((it, 1, Progress(steps)) for it in COPIES))


def _two_on_a_box() -> tuple[Machine, State]:
    """Two jobs at full speed on one instance, measured once."""
    state = State(CATALOG)
    box = Instance(BOX, LARGE, (("ready", 0),), Millis(0), up_ms=Millis(0))
    state.put_instance(replace(box, ready_ms=Millis(0)))
    ledger.open_account(state, state.instances[BOX])
    running = (("running", 0),)
    for run in COPIES:
        name = JobId(run.partition("/")[0])
        spec = replace(job(name, 2), tasks=(task(2, name, RATE * MILLION),))
        state.put_job(Job(name, spec, Millis(0), running))
        state.put_run(TaskRun(run, name, 0, running, 1, BOX, BOX))
    machine = Machine(state, Settings(window_ms=WINDOW_MS))
    machine.handle([_registered(1, 0)], Millis(0))
    machine.handle([_sampled(1, 1)], Millis(0))
    machine.handle([_sampled(1, 1 + RATE * 10)], Millis(WINDOW_MS))
    assert {state.runs[it].progress.rate for it in COPIES} == {RATE}
    return machine, state


def test_a_host_that_stood_still_was_not_slowed_down_by_company() -> None:
    machine, state = _two_on_a_box()
    known = lessons_of(state).throughput
    steps = 1 + RATE * 10
    machine.handle([WorkerLost(BOX, 1)], Millis(20_000))
    assert {state.runs[it].progress.rate for it in COPIES} == {0}, "nothing is measured"

    # It comes back and has done nothing in all the time that it was away.
    asked = machine.handle([_registered(2, steps)], Millis(60_000))
    asked += machine.handle([_sampled(2, steps + RATE)], Millis(61_000))
    assert lessons_of(state).throughput == known
    assert not [it for it in asked if isinstance(it, RequestPlan)]

    machine.handle([_sampled(2, steps + RATE + RATE * 10)], Millis(61_000 + WINDOW_MS))
    assert {state.runs[it].progress.rate for it in COPIES} == {RATE}


def test_a_master_that_stood_still_has_measured_nothing() -> None:
    machine, state = _two_on_a_box()
    known = lessons_of(state).throughput
    steps = 1 + RATE * 10
    # What a worker had sent before the master stopped reading is read half a minute later.
    late = [replace(_sampled(1, steps + RATE), disturbed=True), _sampled(1, steps + 2 * RATE)]
    asked = machine.handle(late, Millis(40_000))
    assert lessons_of(state).throughput == known
    assert not [it for it in asked if isinstance(it, RequestPlan)]


def test_windows_with_a_user_in_a_task_teach_nothing() -> None:
    """A shell beside one of two tasks slows both down; once it is gone they are measured again."""
    machine, state = _two_on_a_box()
    known = lessons_of(state).throughput
    steps, now = 1 + RATE * 10, WINDOW_MS
    for _ in range(4):
        steps, now = steps + RATE, now + WINDOW_MS
        asked = machine.handle([replace(_sampled(1, steps), disturbed=True)], Millis(now))
        assert not [action for action in asked if isinstance(action, RequestPlan)]
    assert lessons_of(state).throughput == known
    steps, now = steps + RATE * 10, now + WINDOW_MS
    machine.handle([_sampled(1, steps)], Millis(now))
    assert {state.runs[run].progress.rate for run in COPIES} == {RATE}
