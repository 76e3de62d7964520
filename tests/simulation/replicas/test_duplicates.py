"""What becomes of a task with two runs: who wins, who fails, what is booked and written down."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from eva_lab.simulator.cluster.delays import EqualDelays
from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.adapters.store import SqlJournal
from eva_master.app.policy_registry import policies
from eva_master.control.measure import ledger
from eva_master.model.actions import PlaceOutputs, StartTask, StopTask
from eva_master.model.events import CancelRequested, OutputsPlaced, SuspendRequested
from eva_master.model.job import Stragglers
from eva_master.model.records import TaskRun
from eva_wire.values.bounds import ASKS_FOR_RETRY
from eva_wire.values.ids import JobId, Millis, RunId
from eva_wire.values.states import JobState, RunState
from tests.fakes.jobs import MEDIUM, job

MINUTE_MS = 60_000
LATE, OTHER = JobId("late-2"), JobId("other-1")
OWN, EXTRA = RunId("late-2/0"), RunId("late-2/0+1")
DELAYS = EqualDelays(fetch_ms=5_000, start_ms=1_000, stop_ms=10_000, report_ms=5_000)
NO_PACKING = policies()["no_packing"]


class World(SimulatedCluster):
    """An array of two tasks, of which one is late, beside a job with room on its instance."""

    def __init__(self, works: dict[RunId, Work] | None = None, **more: object) -> None:
        known = {OWN: Work(60 * MINUTE_MS), **(works or {})}
        super().__init__(
            (MEDIUM,),
            NO_PACKING.build(NO_PACKING.config()),
            delays=DELAYS,
            work_of=lambda run: known.get(run) or Work(self._usual_ms(run)),
            **more,  # type: ignore[arg-type]
        )
        self.submit(job("other", 2, minutes=180))
        options = {"array": True, "minutes": 10, "retries": 1}
        self.submit(job("late", 1, 1, stragglers=Stragglers.DUPLICATE, **options))  # type: ignore[arg-type]

    @staticmethod
    def _usual_ms(run: RunId) -> float:
        return (180 if run.startswith("other") else 10) * MINUTE_MS

    def until(self, condition: Callable[[], object]) -> None:
        assert self.run(lambda: bool(condition()), limit_ms=10 * 60 * MINUTE_MS)

    def until_doubled(self) -> None:
        self.until(lambda: EXTRA in self.state.runs and self.extra.state is RunState.RUNNING)

    @property
    def own(self) -> TaskRun:
        return self.state.runs[OWN]

    @property
    def extra(self) -> TaskRun:
        return self.state.runs[EXTRA]

    @property
    def ended(self) -> bool:
        return LATE in self.state.jobs and self.state.jobs[LATE].finished_ms is not None


def test_outputs_of_tasks_that_may_have_several_runs_are_stored() -> None:
    world, stored = World(), dict[str, bool]()
    execute = world.workers.execute

    def noted(action: object) -> None:
        if isinstance(action, StartTask):
            stored[action.order.run] = action.order.outputs_stored
        execute(action)  # type: ignore[arg-type]

    world.workers.execute = noted  # type: ignore[method-assign]
    world.until_doubled()
    assert stored[OWN]
    assert stored[EXTRA]
    assert not stored["other-1/0"]


def test_the_first_run_to_succeed_is_the_task_s() -> None:
    world = World()
    world.until_doubled()
    assert world.extra.instance == world.state.runs[RunId("other-1/0")].instance
    assert world.extra.why == "late-2/0 has run for 20 min where 10 min were expected"
    world.until(lambda: world.ended)
    assert (world.own.state, world.extra.state) == (RunState.CANCELLED, RunState.SUCCEEDED)
    assert world.own.outputs_of == 1
    assert world.own.why == "late-2/0+1 has succeeded"
    assert world.state.jobs[LATE].state is JobState.SUCCEEDED
    assert world.state.jobs[LATE].finished_ms < 35 * MINUTE_MS


def test_an_own_run_that_is_first_after_all_leaves_nothing_to_copy() -> None:
    # Its program does not say how much is left, or it would not have been doubled.
    own = Work(25 * MINUTE_MS, tells_total=False)
    world = World({OWN: own, EXTRA: Work(60 * MINUTE_MS)})
    world.until(lambda: world.ended)
    assert (world.own.state, world.extra.state) == (RunState.SUCCEEDED, RunState.CANCELLED)
    assert not world.checkpoints.placed


def test_of_two_that_succeed_in_one_moment_one_wins() -> None:
    world = World({EXTRA: Work(600 * MINUTE_MS)})
    world.until_doubled()
    # Both exit with 0; what the loser says comes when the winner is known and it is to stop.
    attempts = {
        run.id: next(
            it for it in world.workers._agents[run.instance].present() if it.order.run == run.id
        )
        for run in (world.own, world.extra)
    }
    for run in (EXTRA, OWN):
        world.workers._agents[attempts[run].instance].finish(attempts[run])
    world.until(lambda: world.ended)
    states = [world.extra.state, world.own.state]
    assert states == [RunState.SUCCEEDED, RunState.CANCELLED]
    assert world.checkpoints.placed == {OWN: EXTRA}
    assert world.state.tasks[LATE].counts[RunState.SUCCEEDED] == 2


def test_outputs_are_put_in_place_once_the_loser_is_gone_and_before_the_job_ends() -> None:
    world = World()
    asked: list[Millis] = []
    place, execute = world.checkpoints.place, world.workers.execute
    stopped: list[StopTask] = []

    def refuse_at_first(request: PlaceOutputs) -> None:
        asked.append(world.timeline.now())
        assert world.own.instance is None, "the loser may still write there"
        assert not world.ended
        if len(asked) == 1:
            world.inbox.post(OutputsPlaced(request.run, "no such bucket"))
        else:
            place(request)

    def noted(action: object) -> None:
        if isinstance(action, StopTask):
            stopped.append(action)
        execute(action)  # type: ignore[arg-type]

    world.checkpoints.place = refuse_at_first  # type: ignore[method-assign]
    world.workers.execute = noted  # type: ignore[method-assign]
    world.until(lambda: asked)
    world.until(lambda: world.own.waiting_for)
    assert "cannot be put in its place: no such bucket" in world.own.waiting_for
    world.until(lambda: world.ended)
    assert len(asked) == 2
    assert {it.run for it in stopped} == {OWN}


def test_a_master_that_dies_after_the_win_goes_on_with_it() -> None:
    world = World()
    world.checkpoints.place = lambda _: None  # type: ignore[method-assign]
    world.until_doubled()
    world.until(lambda: world.extra.state is RunState.SUCCEEDED and world.own.instance is None)
    del world.checkpoints.place
    world.restart()
    world.until(lambda: world.ended)
    assert world.checkpoints.placed == {OWN: EXTRA}
    assert world.own.outputs_of == 1


def test_the_winner_s_instance_may_go_after_it_has_won() -> None:
    world = World()
    world.until_doubled()
    place = world.extra.instance
    world.until(lambda: world.extra.state is RunState.SUCCEEDED)
    assert place is not None
    world.cloud.fail(place)
    world.until(lambda: world.ended)
    assert world.state.jobs[LATE].state is JobState.SUCCEEDED
    assert world.checkpoints.placed == {OWN: EXTRA}


@pytest.mark.parametrize("lost", [OWN, EXTRA])
def test_a_run_whose_instance_is_lost_leaves_the_task_to_the_other(lost: RunId) -> None:
    world = World({OWN: Work(40 * MINUTE_MS), EXTRA: Work(30 * MINUTE_MS)})
    world.until_doubled()
    instance = world.state.runs[lost].instance
    assert instance is not None
    world.cloud.fail(instance)
    if lost == OWN:
        world.until(lambda: world.own.state is RunState.WAITING)
        assert world.extra.state is RunState.RUNNING
        assert not world.state.unplaced, "nothing is planned for it meanwhile"
    world.until(lambda: world.ended)
    winner, other = (world.extra, world.own) if lost == OWN else (world.own, world.extra)
    assert (winner.state, other.state) == (RunState.SUCCEEDED, RunState.CANCELLED)


def test_a_task_fails_with_its_last_run() -> None:
    world = World({EXTRA: Work(60 * MINUTE_MS)})
    world.until_doubled()
    _fail(world, OWN)
    world.until(lambda: world.own.state is RunState.FAILED)
    assert world.state.jobs[LATE].state is JobState.RUNNING, "the other run may still succeed"
    assert world.extra.state is RunState.RUNNING
    _fail(world, EXTRA)
    world.until(lambda: world.ended)
    found = world.state.jobs[LATE]
    assert (found.state, found.exit_code) == (JobState.FAILED, ASKS_FOR_RETRY)
    assert found.reason == f"task {EXTRA} exited with code 75; no retries left"


def test_an_extra_run_that_fails_for_good_leaves_the_task_to_its_own() -> None:
    world = World({OWN: Work(50 * MINUTE_MS), EXTRA: Work(60 * MINUTE_MS)})
    world.until_doubled()
    _fail(world, EXTRA)
    world.until(lambda: world.extra.state is RunState.FAILED)
    world.until(lambda: world.ended)
    assert world.own.state is RunState.SUCCEEDED
    assert world.state.jobs[LATE].state is JobState.SUCCEEDED


def _fail(world: World, run: RunId) -> None:
    """Have an instance's agent report failures of a run until no retries are left."""
    for _ in range(2):
        world.until(lambda: world.state.runs[run].state is RunState.RUNNING)
        known = world.state.runs[run]
        assert known.instance is not None
        agent = world.workers._agents[known.instance]
        (attempt,) = [it for it in agent.present() if it.order.run == run]
        attempt.work.failures.append(ASKS_FOR_RETRY)
        agent.finish(attempt)
        world.until(lambda known=known: world.state.runs[run].history != known.history)


@pytest.mark.parametrize("event", [CancelRequested, SuspendRequested])
def test_a_job_that_is_cancelled_or_suspended_stops_both(event: type) -> None:
    world = World()
    world.until_doubled()
    world.inbox.post(event("stop", LATE, "me"))
    world.until(lambda: not world.state.in_hand(LATE))
    assert world.extra.state is RunState.CANCELLED
    kept = RunState.WAITING if event is SuspendRequested else RunState.CANCELLED
    assert world.own.state is kept


def test_a_cancelled_job_does_not_wait_for_a_store_that_fails() -> None:
    world = World({RunId("late-2/1"): Work(600 * MINUTE_MS)})
    world.checkpoints.place = lambda it: world.inbox.post(OutputsPlaced(it.run, "no such bucket"))  # type: ignore[method-assign]
    world.until(lambda: EXTRA in world.state.runs and world.own.waiting_for)
    world.inbox.post(CancelRequested("stop", LATE, "me"))
    assert world.run(lambda: world.ended, limit_ms=5 * MINUTE_MS)
    assert world.state.jobs[LATE].state is JobState.CANCELLED
    before = world.own
    world.inbox.post(OutputsPlaced(EXTRA))
    world.run(lambda: False, limit_ms=5 * MINUTE_MS)
    assert world.own == before, "what is over stays as it is"


def test_a_job_that_is_done_but_for_a_store_that_fails_can_be_cancelled() -> None:
    world = World()
    world.checkpoints.place = lambda it: world.inbox.post(OutputsPlaced(it.run, "no such bucket"))  # type: ignore[method-assign]
    jobs = world.state.jobs
    world.until(lambda: LATE in jobs and jobs[LATE].state is JobState.ENDING)
    assert not world.run(lambda: world.ended, limit_ms=60 * MINUTE_MS)
    assert "no such bucket" in world.own.waiting_for
    world.inbox.post(CancelRequested("stop", LATE, "me"))
    assert world.run(lambda: world.ended, limit_ms=MINUTE_MS)
    job = jobs[LATE]
    assert (job.state, job.exit_code) == (JobState.CANCELLED, 130)
    assert "before all outputs were in place" in job.reason


def test_what_it_costs_is_told_and_alone_each_task_has_one_run(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'journal.db'}"
    with SqlJournal.open(url) as journal:
        world = World(journal=journal)
        world.until(lambda: world.ended)
        account = ledger.bill(world.state, world.timeline.now()).jobs[LATE]
        ran_ms = dict(world.extra.history)["succeeded"] - dict(world.extra.history)["starting"]
        # It had a third of the other job's instance: one vCPU beside two.
        assert 0 < account.replicas < account.charged
        assert account.replicas <= MEDIUM.price * ran_ms
        other = world.state.job_accounts[OTHER]
        assert other.replicas == 0
        world.restart()
        assert world.state.job_accounts[LATE] == account
        assert list(world.state.members(LATE)) == [
            world.own,
            world.extra,
            world.state.runs[RunId("late-2/1")],
        ]
        assert world.own.replicas == 1


def test_without_room_nothing_begins_and_nothing_is_bought() -> None:
    world = World()
    world.until(lambda: OTHER in world.state.jobs and world.own.state is RunState.RUNNING)
    world.inbox.post(CancelRequested("away", OTHER, "me"))
    world.until(lambda: world.ended)
    assert EXTRA not in world.state.runs
    assert world.own.state is RunState.SUCCEEDED
    assert world.cloud.launches == 3
