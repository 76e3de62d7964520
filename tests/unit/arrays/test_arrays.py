"""Arrays: what a plan is shown of them, what one task's events touch, and how they fail."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.calls import Calls
from eva_master.control import converge
from eva_master.control.machine import Machine
from eva_master.control.settings import Settings
from eva_master.control.state.job_tasks import SHOWN_AT_ONCE
from eva_master.control.state.store import State
from eva_master.model.actions import Action, RequestPlan
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.events import (
    CancelRequested,
    Event,
    InstanceUp,
    JobSubmitted,
    Phase,
    PlanReady,
    RunReport,
    Tick,
    WorkerRegistered,
    WorkerReported,
)
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.planning.plan import Assign, Hold, NewInstance, Plan
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.records import Job, TaskRun
from eva_master.model.resources import Resources
from eva_master.testing.job_views import with_values
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, InstanceId, JobId, Millis, Price, RunId, Workload, run_id
from eva_wire.values.states import RunState

C = Family("c")
HUGE = 100_000
OFFERING = Offering(InstanceType("c.huge", C, Resources(0, 1000 * HUGE, HUGE)), Price(1_000_000))
BOX = InstanceId("i00001")
JOB = JobId("a-1")
TASK = TaskSpec(Workload("w"), Program("true"), ((C, Resources(0, 1000, 1)),), reports_steps=False)
NOWHERE = TaskSpec(Workload("v"), Program("true"), ((C, Resources(1, 1000, 1)),))


class Array:
    """One array on one instance; the planner has room for so many tasks, and holds the others."""

    def __init__(
        self, *tasks: TaskSpec, room: int = 5_000, state: State | None = None, **spec: Any
    ) -> None:
        self.now = 0
        self.room = room
        self.seen: list[Snapshot] = []
        self.machine = Machine(state or State((OFFERING,)), Settings(round_gap_ms=0))
        self._answer(self.machine.recover(Millis(0)))
        if tasks:
            array = with_values(JobSpec("a", "me", tasks, kind=JobKind.ARRAY), spec)
            self.tell(JobSubmitted("command", array))
            self.tell(InstanceUp(BOX, Millis(0)))
            self.tell(WorkerRegistered(BOX, 1, OFFERING.type.capacity, ()))

    def tell(self, *events: Event) -> None:
        self._answer(self.machine.handle(events, Millis(self.now)))

    def _answer(self, actions: list[Action]) -> None:
        while events := [it for action in actions for it in self._plans(action)]:
            actions = self.machine.handle(events, Millis(self.now))

    def _plans(self, action: Action) -> Iterator[Event]:
        if isinstance(action, RequestPlan):
            self.seen.append(action.snapshot)
            known = BOX in self.machine.state.instances
            hosted = [it for it in action.snapshot.runs if it.task.demand == TASK.demand]
            waiting = [it.id for it in hosted if it.instance is None]
            room = max(0, self.room - len(hosted) + len(waiting))
            boxes = [BOX if known and not key else key for key in range(-(-room // 50))]
            places = [Assign(run, boxes[at // 50]) for at, run in enumerate(waiting[:room])]
            holds = [Hold(run, "no room") for run in waiting[room:]]
            used = dict.fromkeys(place.on for place in places)
            launches = tuple(NewInstance(key, OFFERING) for key in used if isinstance(key, int))
            yield PlanReady(action.round, Plan(launches, (*places, *holds)), None)

    @property
    def state(self) -> State:
        return self.machine.state

    @property
    def job(self) -> Job:
        return self.state.jobs[JOB]

    def run(self, index: int) -> TaskRun:
        return self.state.runs[run_id(JOB, index)]

    def counts(self) -> dict[str, int]:
        return {state.value: n for state, n in self.state.tasks[JOB].counts.items() if n}

    def report(self, index: int, phase: Phase, **more: Any) -> None:
        run = self.run(index)
        report = RunReport(run.id, run.attempt, phase, **more)
        self.tell(WorkerReported(BOX, 1, (report,)))

    def begin(self, *indices: int) -> None:
        for index in indices:
            self.report(index, Phase.RUNNING)

    def finish(self, *indices: int, code: int = 0, **more: Any) -> None:
        for index in indices:
            self.report(index, Phase.EXITED, exit_code=code, **more)

    def wait(self, ms: int) -> None:
        until = self.now + ms
        while (due := self.machine.next_alarm()) is not None and due <= until:
            self.now = max(self.now, due)
            self.tell(Tick())
        self.now = until
        self.tell(Tick())


def test_a_task_to_which_nothing_has_happened_has_no_record() -> None:
    array = Array(*[TASK] * 5_000, room=3, retries=0)
    assert len(array.state.runs) == 5_000
    assert len(array.state.runs.touched) == 3, "who is held needs no record to know why"
    assert array.run(4_999).state is RunState.WAITING
    assert array.run(3).waiting_for == array.run(4_999).waiting_for == "no room"
    assert array.counts() == {"waiting": 4_997, "starting": 3}
    changes = array.machine.take_changes()
    # Nothing else than the journal's few records makes a cluster in which all are there.
    again = Array(room=3, state=State.restored((OFFERING,), changes))
    assert again.counts() == {"waiting": 4_997, "starting": 3}
    assert again.run(4_999) == array.run(4_999)
    assert dict(again.state.totals.runs) == dict(array.state.totals.runs)
    for name in ("a-1/5000", "a-1/-1", "a-1/01", "a-1/+1", "a-1/", "a-1/²", "b-1/0", "a-1/1e3"):
        assert RunId(name) not in array.state.runs
        assert array.state.runs.get(RunId(name)) is None


def test_the_end_of_an_array_ends_the_tasks_that_never_began() -> None:
    array = Array(*[TASK] * 5_000, room=2)
    array.tell(CancelRequested("stop", JOB, owner="me"))
    assert array.run(4_999).state is RunState.CANCELLED
    assert array.counts()["cancelled"] > 4_900
    running = [run.index for run in array.state.in_hand(JOB)]
    array.finish(*running, code=143, stopped=True)
    assert array.job.state == "cancelled"
    assert array.counts() == {"cancelled": 5_000}
    assert array.state.totals.runs == {RunState.CANCELLED: 5_000}
    assert len(array.state.runs.touched) == 2
    ended = array.run(4_999).history
    assert [state for state, _ in ended] == ["waiting", "cancelled"]


def test_a_plan_is_shown_the_first_that_wait_and_asked_for_again_while_there_are_more() -> None:
    array = Array(*[TASK] * (2 * SHOWN_AT_ONCE + 10))
    waiting = [[it for it in seen.runs if it.instance is None] for seen in array.seen]
    assert [len(seen) for seen in waiting if seen] == [SHOWN_AT_ONCE, SHOWN_AT_ONCE, 10]
    assert len(array.state.in_hand(JOB)) == 2 * SHOWN_AT_ONCE + 10


def waiting_in(seen: Snapshot) -> int:
    return sum(it.instance is None for it in seen.runs)


def test_while_there_is_no_room_a_plan_is_shown_few_that_wait() -> None:
    array = Array(*[TASK] * 2_500, room=3)
    array.wait(3_600_000)
    assert next(filter(None, map(waiting_in, array.seen))) == SHOWN_AT_ONCE
    assert waiting_in(array.seen[-1]) <= SHOWN_AT_ONCE // 8
    # Once all that were shown find places, many are shown again, at once.
    array.room = 2_500
    rounds = len(array.seen)
    array.wait(600_000)
    assert SHOWN_AT_ONCE in map(waiting_in, array.seen[rounds:])
    assert len(array.state.in_hand(JOB)) == 2_500


def test_as_many_are_shown_as_may_find_room_when_those_in_hand_end() -> None:
    array = Array(*[TASK] * 3_000, room=600)
    array.wait(3_600_000)
    assert len(array.state.in_hand(JOB)) == 600
    assert 600 <= waiting_in(array.seen[-1]) < SHOWN_AT_ONCE


def test_of_many_kinds_all_are_shown_though_there_was_no_room() -> None:
    kinds = [replace(NOWHERE, workload=Workload(f"v{kind}")) for kind in range(300)]
    array = Array(TASK, *kinds * 4, replace(TASK, workload=Workload("last")), room=1)
    array.wait(3_600_000)
    assert array.counts()["starting"] == 1
    array.room = 2
    array.wait(3_600_000)
    assert array.counts()["starting"] == 2


def test_a_kind_that_fits_nowhere_does_not_hide_the_others() -> None:
    array = Array(*[NOWHERE] * (3 * SHOWN_AT_ONCE), *[TASK] * 20)
    assert array.counts()["starting"] == 20


@pytest.mark.parametrize("gone", [0, 1])
def test_no_more_tasks_than_it_allows_have_a_place(gone: int) -> None:
    array = Array(*[TASK] * 50, concurrency=4)
    assert array.counts() == {"waiting": 46, "starting": 4}
    assert not array.state.unplaced, "the rest wait for these, not for a plan"
    assert {len(seen.jobs[0].runs) for seen in array.seen if seen.jobs} == {4}
    array.begin(0, 1, 2, 3)
    # A task that failed waits for its next attempt, and another one may have its place.
    array.finish(0, code=gone)
    assert len(array.state.tasks[JOB].in_hand) == 4
    begun = {run.index for run in array.state.in_hand(JOB)}
    assert begun == ({0, 1, 2, 3} if gone else {1, 2, 3, 4})


def test_all_succeed_in_turn_and_the_array_with_the_last() -> None:
    array = Array(*[TASK] * 7, concurrency=2)
    states = []
    while array.job.state not in ("succeeded", "failed"):
        for run in array.state.in_hand(JOB):
            array.begin(run.index)
            array.finish(run.index)
            states.append(array.job.state.value)
            array.wait(100)
    assert states == ["running"] * 6 + ["succeeded"], "its state rests while tasks come and go"
    assert array.counts() == {"succeeded": 7}
    assert [array.run(index).attempt for index in range(7)] == [1] * 7
    assert array.job.attempt == 0


def test_an_array_of_which_nothing_runs_for_a_minute_is_pending_again() -> None:
    array = Array(*[TASK] * 3, concurrency=1)
    array.begin(0)
    array.room = 0
    array.finish(0)
    array.wait(59_000)
    assert array.job.state == "running"
    array.wait(2_000)
    assert array.job.state == "pending"


def test_retries_are_counted_for_each_task() -> None:
    array = Array(TASK, TASK, retries=2)
    for attempt in (1, 2):
        for index in (0, 1):
            while array.run(index).state is not RunState.STARTING:
                array.wait(1_000)
            array.begin(index)
            array.wait(60_000)
            array.finish(index, code=3)
            assert (array.run(index).failures, array.run(index).attempt) == (attempt, attempt)
            assert "exited with code 3" in array.run(index).reason
    assert (array.job.state, array.job.failures) == ("running", 4)
    while array.run(0).state is not RunState.STARTING:
        array.wait(1_000)
    array.begin(0)
    array.wait(60_000)
    array.finish(0, code=3)
    assert (array.run(0).state, array.run(0).failures) == (RunState.FAILED, 3)
    assert (array.job.outcome, array.job.exit_code) == ("failed", 3)
    assert f"task {JOB}/0 exited with code 3; no retries left" in array.job.reason
    if array.run(1).state is RunState.STOPPING:
        array.finish(1, code=143, stopped=True)
    assert array.run(1).state is RunState.CANCELLED
    assert array.job.state == "failed"


def test_a_task_that_backs_off_keeps_no_other_waiting() -> None:
    array = Array(TASK, TASK)
    array.begin(0)
    array.finish(0, code=75)
    assert array.run(0).not_before_ms > array.now
    array.begin(1)
    array.finish(1)
    assert array.run(1).state is RunState.SUCCEEDED
    array.wait(60_000)
    assert (array.run(0).state, array.run(0).attempt) == (RunState.STARTING, 2)


def calls(work: Any) -> int:
    """How many functions of the control loop something calls."""
    counted = Calls()
    with counted.counting():
        work()
    return counted.made


def test_an_event_costs_the_same_in_an_array_of_any_size() -> None:
    def of(tasks: int) -> int:
        array = Array(*[TASK] * tasks, concurrency=8)
        array.begin(*range(8))
        array.room = 0
        return calls(lambda: array.finish(0))

    assert of(20_000) <= of(100) + 10


def test_a_start_writes_the_task_alone() -> None:
    array = Array(*[TASK] * 10, concurrency=2)
    array.begin(0, 1)
    array.machine.take_changes()
    array.finish(0)
    changes = array.machine.take_changes()
    assert [run.index for run in changes.runs] == [0, 2]
    assert changes.jobs == ()


def test_converging_it_once_more_does_nothing() -> None:
    array = Array(*[TASK] * 10, concurrency=2)
    array.begin(0, 1)
    array.machine.take_changes()
    context = array.machine._context
    converge.converge_job(context, JOB)
    for index in range(10):
        converge.converge_run(context, run_id(JOB, index))
    assert not array.machine.take_changes()
