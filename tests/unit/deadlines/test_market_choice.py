"""What the control loop buys for jobs with deadlines, and when it looks again."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.control.machine import Machine
from eva_master.control.measure.remaining import left_ms
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.actions import Action, Reply
from eva_master.model.catalog import is_spot, spot_family
from eva_master.model.events import (
    InstanceUp,
    JobSubmitted,
    LaunchFailed,
    Phase,
    PlanReady,
    ProgressSampled,
    Tick,
    WorkerFetched,
    WorkerRegistered,
)
from eva_master.model.job import Deadline
from eva_master.model.planning.plan import Assign, Hold, NewInstance, Plan
from eva_master.model.planning.snapshot import RunView
from eva_master.model.planning.spot_choice import SpotChoice
from eva_master.model.progress import Progress
from eva_master.testing.job_views import with_values
from eva_wire.values.bounds import JobKind
from eva_wire.values.errors import InvalidJob
from eva_wire.values.ids import MILLION, InstanceId, JobId, Millis, RunId
from eva_wire.values.states import JobState, MarketRule, RunState
from tests.unit.control.test_control_cloud import (
    CATALOG,
    FIRST,
    RUN,
    SECOND,
    SIZE,
    SPOT,
    ZONES,
    C,
    launched,
    passed,
    reported,
    request,
    submitted,
)

HOUR = 3_600_000
FAR_MS = 10**14
JOB = JobId("job-1")


def machine(**changed: object) -> Machine:
    """A control loop that does nothing at fixed times."""
    settings = Settings(
        round_gap_ms=0,
        round_period_ms=FAR_MS,
        sync_period_ms=FAR_MS,
        cloud_resend_ms=FAR_MS,
        worker_resend_ms=FAR_MS,
    )
    return Machine(State(CATALOG), replace(settings, **changed))  # type: ignore[arg-type]


def due(deadline: Deadline | None, *, hours: float = 2, **more: object) -> JobSubmitted:
    """A job that takes so long."""
    event = submitted()
    spec = with_values(
        replace(event.spec, deadline=deadline, duration_ms=round(hours * HOUR)), more
    )
    return replace(event, spec=spec)


def within(hours: float, **more: object) -> JobSubmitted:
    return due(Deadline(within_ms=round(hours * HOUR)), **more)  # type: ignore[arg-type]


def shown(actions: list[Action]) -> RunView:
    """The job's task as its policy sees it."""
    (view,) = request(actions).snapshot.runs
    return view


def offered(actions: list[Action]) -> set[bool]:
    """Whether it is offered spot instances, and others."""
    return {is_spot(family) for family, _ in shown(actions).task.demand}


@pytest.mark.parametrize(
    ("deadline", "what", "hint"),
    [
        (Deadline(at_ms=5), "the deadline has passed", "later"),
        (Deadline(within_ms=2 * HOUR), "on demand the job takes 2h 1m", "within: 121m"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_the_earliest(
    deadline: Deadline, what: str, hint: str
) -> None:
    it = machine()
    (reply,) = (one for one in it.handle([due(deadline)], Millis(10)) if isinstance(one, Reply))
    assert isinstance(reply.error, InvalidJob)
    assert what in reply.error.message
    assert hint in reply.error.hint
    assert not it.state.jobs
    # The earliest that it names is accepted.
    asked = replace(within(121 / 60), command="again")
    (reply,) = (one for one in it.handle([asked], Millis(20)) if isinstance(one, Reply))
    assert reply.error is None


def test_a_job_without_time_to_lose_is_offered_no_spot_instance() -> None:
    it = machine()
    assert offered(it.handle([within(2.025)], Millis(0))) == {False}
    assert it.state.jobs[JOB].buys.kept
    roomy = machine()
    assert offered(roomy.handle([within(9)], Millis(0))) == {False, True}


def test_nobody_knows_how_long_it_takes() -> None:
    it = machine()
    event = within(9)
    unknown = replace(event, spec=replace(event.spec, duration_ms=None))
    assert offered(it.handle([unknown], Millis(0))) == {False}


def on_spot(it: Machine, hours: float) -> Millis:
    """Have a job of two hours wait for the spot instance that it gets; when its time is up."""
    launched(it, it.handle([within(hours)], Millis(0)), SPOT, 1)
    alarm = it.next_alarm()
    assert alarm is not None
    return alarm


@pytest.mark.parametrize("restarts", [False, True])
def test_when_its_time_is_up_it_turns_back_from_a_spot_instance(restarts: bool) -> None:
    it = machine()
    alarm = on_spot(it, 3)
    # It takes two hours, and some minutes are kept for the change.
    assert 0.9 * HOUR < alarm < HOUR
    if restarts:
        it = Machine(State.restored(CATALOG, it.take_changes()), it.settings)
        passed(it, it.recover(Millis(2)), 3)
        again = it.next_alarm()
        assert again is not None
        assert again <= alarm
    assert it.state.runs[RUN].target == FIRST
    actions = it.handle([Tick()], alarm)
    assert it.state.runs[RUN].target is None
    assert offered(actions) == {False}
    assert it.state.jobs[JOB].buys is MarketRule.ON_DEMAND


def test_a_clock_that_jumps_over_it_has_it_turn_back_at_once() -> None:
    it = machine()
    alarm = on_spot(it, 3)
    actions = it.handle([Tick()], Millis(alarm + HOUR))
    view = shown(actions)
    assert (view.instance, view.alone) == (None, True)
    assert it.state.jobs[JOB].buys is MarketRule.STAYS


def test_who_runs_on_demand_and_has_no_time_is_not_moved() -> None:
    it = machine()
    launched(it, it.handle([within(2.025)], Millis(0)), ZONES[0], 1)
    it.handle([InstanceUp(FIRST, Millis(2))], Millis(2))
    it.handle([WorkerRegistered(FIRST, 1, SIZE, ())], Millis(3))
    view = request(it.handle([another()], Millis(4))).snapshot.runs[0]
    assert (view.id, view.instance, view.pinned) == (RUN, FIRST, True)


def test_a_pool_that_refuses_is_waited_for_while_there_is_time() -> None:
    it = machine()
    actions = it.handle([within(12)], Millis(0))
    launched(it, actions, SPOT, 1)
    actions = it.handle([LaunchFailed(FIRST, Millis(2), "none left")], Millis(2))
    assert it.state.jobs[JOB].buys is MarketRule.SPOT
    until = it.state.jobs[JOB].buys_until_ms
    assert until is not None
    assert 9.9 * HOUR < until < 10 * HOUR
    assert offered(actions) == {True}
    again = it.next_alarm()
    assert again is not None
    assert again <= until, "it is looked at again before its time is up"
    # A change turns out to take half an hour longer: it is told anew until when it may wait.
    it._context.settings = replace(it._context.settings, round_gap_ms=HOUR // 2)
    it._context.touch_job(JOB)
    it.handle([Tick()], Millis(1_000))
    assert it.state.jobs[JOB].buys_until_ms == until - HOUR // 2
    it.handle([Tick()], Millis(until - HOUR // 2))
    assert it.state.jobs[JOB].buys.kept


def test_a_rule_may_have_all_of_them_on_demand() -> None:
    it = machine(spot_choice=SpotChoice.ON_DEMAND)
    assert offered(it.handle([within(100)], Millis(0))) == {False}


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_late_goes_on_or_is_failed(fails: bool) -> None:
    it = machine()
    event = due(Deadline(within_ms=3 * HOUR, fails=fails))
    it.handle([event], Millis(0))
    it.handle([Tick()], Millis(3 * HOUR))
    job = it.state.jobs[JOB]
    if not fails:
        assert (job.state, job.buys) == (JobState.PENDING, MarketRule.ANY), (
            "it is as cheap as it can be"
        )
        return
    assert (job.state, job.exit_code) == (JobState.FAILED, 124)
    assert "deadline_miss" in job.reason


def test_without_a_deadline_it_waits_as_long_as_it_says() -> None:
    it = machine()
    actions = it.handle([due(None, spot_wait_ms=HOUR)], Millis(0))
    assert offered(actions) == {True}
    passed(it, actions, 1)
    assert it.state.jobs[JOB].buys_until_ms == HOUR
    assert it.next_alarm() == HOUR
    assert offered(it.handle([Tick()], Millis(HOUR))) == {False, True}


def test_what_checkpoints_by_itself_keeps_the_time_of_a_lost_interval() -> None:
    plain, storing = machine(), machine()
    first = on_spot(plain, 4)
    launched(
        storing,
        storing.handle([within(4, checkpoint_interval_ms=HOUR // 2)], Millis(0)),
        SPOT,
        1,
    )
    second = storing.next_alarm()
    assert second == first - HOUR // 2


def array(count: int, concurrency: int | None) -> JobSubmitted:
    """An array of tasks of an hour each, due in five hours."""
    event = due(Deadline(within_ms=5 * HOUR), hours=1, kind=JobKind.ARRAY, concurrency=concurrency)
    return replace(event, spec=replace(event.spec, tasks=event.spec.tasks * count))


@pytest.mark.parametrize(
    ("count", "concurrency", "kept"), [(8, None, False), (8, 4, False), (8, 2, True)]
)
def test_of_an_array_as_many_tasks_run_at_once_as_it_asks_for(
    count: int, concurrency: int | None, kept: bool
) -> None:
    it = machine()
    # Two at a time take four hours, and on demand as long; less than an hour may be lost.
    it.handle([array(count, concurrency)], Millis(0))
    it.handle([Tick()], Millis(HOUR))
    assert it.state.jobs[JOB].buys.kept == kept


def test_however_often_a_job_changes_it_is_looked_at_once() -> None:
    it = machine()
    launched(it, it.handle([within(12)], Millis(0)), SPOT, 1)
    passed(it, it.handle([LaunchFailed(FIRST, Millis(2), "none left")], Millis(2)), 3)
    assert it.state.jobs[JOB].buys is MarketRule.SPOT
    before = len(it._context.alarms._heap)
    for second in range(1, 50):
        it._context.touch_job(JOB)
        it.handle([Tick()], Millis(second * 1_000))
    assert len(it._context.alarms._heap) <= before


@pytest.mark.parametrize("hours", [0.5, 2])
def test_what_runs_is_offered_all_however_long_it_may_wait(hours: float) -> None:
    it = machine()
    event = due(None, spot_wait_ms=HOUR)
    launched(it, it.handle([event], Millis(0)), SPOT, 1)
    it.handle([InstanceUp(FIRST, Millis(2))], Millis(2))
    it.handle([WorkerRegistered(FIRST, 1, SIZE, ())], Millis(3))
    assert it.state.jobs[JOB].buys is MarketRule.ANY
    it.handle([Tick()], Millis(round(hours * HOUR)))
    assert it.state.jobs[JOB].buys is MarketRule.ANY


OTHER = RunId("second-2/0")
THIRD = InstanceId("i00003")


def another(name: str = "second") -> JobSubmitted:
    """One without a deadline."""
    event = submitted()
    return replace(event, command=name, spec=replace(event.spec, name=name))


def run_on_spot(hours: float) -> Machine:
    """A job of two hours that runs on a spot instance, and is due after so many."""
    it = machine()
    launched(it, it.handle([within(hours)], Millis(0)), SPOT, 1)
    it.handle([InstanceUp(FIRST, Millis(2))], Millis(2))
    it.handle([WorkerRegistered(FIRST, 1, SIZE, ())], Millis(3))
    it.handle([reported(Phase.RUNNING)], Millis(4))
    assert it.state.runs[RUN].state is RunState.RUNNING
    return it


def test_who_has_stopped_to_move_when_its_time_is_up_starts_on_no_spot_instance_again() -> None:
    it = run_on_spot(12)
    launched(it, it.handle([another()], Millis(5)), SPOT, 6)
    it.handle([InstanceUp(SECOND, Millis(7))], Millis(7))
    it.handle([WorkerRegistered(SECOND, 1, SIZE, ())], Millis(8))
    it.handle([WorkerFetched(SECOND, 1, RUN)], Millis(9))
    assert it.state.runs[RUN].state is RunState.STOPPING
    passed(it, it.handle([Tick()], Millis(11 * HOUR)), 11 * HOUR + 1)
    assert it.state.jobs[JOB].buys.kept
    assert it.state.runs[RUN].target is None
    stopped = it.handle([reported(Phase.EXITED, generation=1)], Millis(11 * HOUR + 2))
    (view,) = (view for view in request(stopped).snapshot.runs if view.id == RUN)
    assert (view.instance, view.pinned) == (None, False)
    assert {is_spot(family) for family, _ in view.task.demand} == {False}


def test_the_room_of_who_cannot_be_moved_yet_is_not_given_away() -> None:
    it = machine()
    launched(it, it.handle([within(12)], Millis(0)), SPOT, 1)
    it.handle([InstanceUp(FIRST, Millis(2))], Millis(2))
    it.handle([WorkerRegistered(FIRST, 1, SIZE, ())], Millis(3))
    assert it.state.runs[RUN].state is RunState.STARTING
    actions = it.handle([Tick()], Millis(11 * HOUR))
    view = shown(actions)
    assert it.state.jobs[JOB].buys.kept
    assert (view.instance, view.pinned) == (FIRST, True)
    assert view.task.demand_on(spot_family(C)) == SIZE, "it takes room where it is"
    passed(it, actions, 11 * HOUR)
    asked = request(it.handle([another()], Millis(11 * HOUR + 1)))
    full = Plan((), (Assign(OTHER, FIRST),))
    it.handle([PlanReady(asked.round, full, None)], Millis(11 * HOUR + 2))
    assert it.state.runs[OTHER].target is None
    # Once it runs it is to go elsewhere, and its room may be given to others in the same plan.
    moving = run_on_spot(12)
    view = shown(moving.handle([Tick()], Millis(11 * HOUR)))
    assert (view.instance, view.pinned) == (None, False)


def test_who_finds_no_other_place_keeps_its_room() -> None:
    it = run_on_spot(12)
    passed(it, it.handle([Tick()], Millis(11 * HOUR)), 11 * HOUR)
    assert it.state.jobs[JOB].buys.kept
    asked = request(it.handle([another()], Millis(11 * HOUR + 1)))
    entries = (Hold(RUN, "nothing is left"), Assign(OTHER, FIRST))
    it.handle([PlanReady(asked.round, Plan((), entries), None)], Millis(11 * HOUR + 2))
    assert (it.state.runs[RUN].target, it.state.runs[OTHER].target) == (FIRST, None)


def test_who_comes_to_a_spot_instance_without_time_to_lose_is_planned_for_at_once() -> None:
    it = machine()
    launched(it, it.handle([within(12)], Millis(0)), SPOT, 1)
    it.handle([InstanceUp(FIRST, Millis(2))], Millis(2))
    it.handle([WorkerRegistered(FIRST, 1, SIZE, ())], Millis(3))
    late = 11 * HOUR
    passed(it, it.handle([Tick()], Millis(late)), late)
    assert it.state.jobs[JOB].buys.kept
    assert it.state.runs[RUN].state is RunState.STARTING
    view = shown(it.handle([reported(Phase.RUNNING)], Millis(late + 1)))
    assert (view.instance, view.pinned) == (None, False)


def test_who_stops_has_not_lost_what_it_has_done_since_it_told_of_it() -> None:
    it = machine()
    event = within(12, total_steps=7_200)
    rate = ((C, MILLION), (spot_family(C), MILLION))
    tasks = tuple(replace(task, throughput=rate) for task in event.spec.tasks)
    event = replace(event, spec=replace(event.spec, duration_ms=None, tasks=tasks))
    launched(it, it.handle([event], Millis(0)), SPOT, 1)
    it.handle([InstanceUp(FIRST, Millis(2))], Millis(2))
    it.handle([WorkerRegistered(FIRST, 1, SIZE, ())], Millis(3))
    it.handle([reported(Phase.RUNNING)], Millis(4))
    sample = RUN, 1, Progress(steps=1_800, total_steps=7_200)
    it.handle([ProgressSampled(FIRST, 2, (sample,))], Millis(HOUR // 2))
    asked = request(it.handle([another()], Millis(HOUR)))
    moves = Plan((NewInstance(0, ZONES[0]),), (Assign(RUN, 0),))
    it.handle([PlanReady(asked.round, moves, None)], Millis(HOUR))
    it.handle([InstanceUp(SECOND, Millis(HOUR))], Millis(HOUR))
    it.handle([WorkerRegistered(SECOND, 1, SIZE, ())], Millis(HOUR))
    before = left_ms(it.state, it.state.runs[RUN], Millis(HOUR))
    it.handle([WorkerFetched(SECOND, 1, RUN)], Millis(HOUR))
    assert it.state.runs[RUN].state is RunState.STOPPING
    assert before == HOUR
    assert left_ms(it.state, it.state.runs[RUN], Millis(HOUR + 60_000)) == HOUR
