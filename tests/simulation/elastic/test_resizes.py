"""How an elastic gang changes its size: by one move, from one checkpoint, on virtual time."""

from __future__ import annotations

from eva_lab.simulator.cluster.delays import EqualDelays
from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.state.records import placed
from eva_master.model.job import JobSpec
from eva_master.model.records import Job, TaskRun
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId
from eva_wire.values.states import JobState, RunState
from tests.fakes.jobs import CATALOG, SMALL, job
from tests.fakes.policies.sizes import Sized

DELAYS = EqualDelays(fetch_ms=4_000, start_ms=5_000, stop_ms=3_000, report_ms=10_000)
GANG = JobId("g-1")
HOUR_MS = 3_600_000


def elastic(name: str = "g", least: int = 1, most: int = 4, **more: object) -> JobSpec:
    return job(name, *([2] * most), least=least, **more)


class Stage:
    """A world with one elastic gang, ``g-1``, each of whose members has an instance of its own."""

    def __init__(self, size: int, *, stated_ms: int | None = None, **options: object) -> None:
        self.works: dict[RunId, Work] = {}
        self.policy = Sized(SMALL, {"g": size})
        self.world = SimulatedCluster(
            CATALOG,
            self.policy,
            delays=DELAYS,
            work_of=self._work,
            **options,  # type: ignore[arg-type]
        )
        told = {} if stated_ms is None else {"duration_ms": stated_ms}
        self.world.submit(elastic(**told))
        self.until_runs(size)

    def _work(self, run: RunId) -> Work:
        if not run.startswith("g-1/"):
            return Work(1_000)
        return self.works.setdefault(run, Work(HOUR_MS, publishes=run.endswith("/0")))

    @property
    def job(self) -> Job:
        return self.world.state.jobs[GANG]

    def members(self) -> list[TaskRun]:
        return list(self.world.state.members(GANG))

    def running(self) -> list[int]:
        return [run.index for run in self.members() if run.state is RunState.RUNNING]

    def resize(self, size: int) -> None:
        """Ask for another size, and have a round held."""
        self.policy.sizes["g"] = size
        self.world.submit(job(f"nudge{size}", 1, minutes=0.1))

    def until_runs(self, size: int) -> None:
        """Until the gang runs with so many members, all in its last attempt."""

        def there() -> bool:
            if GANG not in self.world.state.jobs:
                return False
            latest = {run.attempt for run in self.members() if run.index < size}
            return self.running() == list(range(size)) and latest == {self.job.attempt}

        assert self.world.run(there, limit_ms=HOUR_MS)

    def orders(self, attempt: int) -> list[object]:
        orders = self.world.history.orders
        return [order for (_, number), order in sorted(orders.items()) if number == attempt]


def test_a_gang_runs_with_as_many_as_the_policy_says_and_the_others_rest() -> None:
    stage = Stage(3)
    orders = stage.orders(1)
    assert [(it.gang.rank, it.gang.size, it.tasks) for it in orders] == [
        (0, 3, 3),
        (1, 3, 3),
        (2, 3, 3),
    ]
    assert stage.job.sizing.members == 3
    assert stage.members()[3].state is RunState.WAITING
    assert not stage.world.state.unplaced


def test_one_member_alone_is_told_where_to_meet_too() -> None:
    (order,) = Stage(1).orders(1)
    assert (order.gang.rank, order.gang.size) == (0, 1)


def test_a_gang_grows_by_one_move_from_one_checkpoint() -> None:
    stage = Stage(1)
    stage.resize(4)
    stage.until_runs(4)
    assert stage.job.attempt == 2
    # Only one stop, and that when all who join could start.
    history = stage.members()[0].history
    (stopped,) = [at for state, at in history if state == "stopping"]
    ready = [it.ready_ms for it in stage.world.state.instances.values()]
    assert stopped >= max(ready)
    assert stopped - max(ready) <= DELAYS.fetch_ms + 1_000
    orders = stage.orders(2)
    assert {(it.gang.size, it.gang.address, it.gang.port) for it in orders} == {
        (4, orders[0].gang.address, orders[0].gang.port)
    }
    assert {it.resume for it in orders} == {1}
    assert [it.checkpoint_of for it in orders] == [None, *[RunId("g-1/0")] * 3]


def test_a_gang_shrinks_at_once_and_goes_on_where_it_was() -> None:
    stage = Stage(4)
    stage.resize(2)
    stage.until_runs(2)
    assert stage.job.attempt == 2
    assert [run.state for run in stage.members()[2:]] == [RunState.WAITING] * 2
    assert [run.target for run in stage.members()[2:]] == [None, None]
    assert stage.world.run(lambda: len(stage.world.state.live) == 2, limit_ms=HOUR_MS)
    assert {it.resume for it in stage.orders(2)} == {1}


def test_who_comes_back_has_forgotten_what_it_stored_before_it_rested() -> None:
    stage = Stage(2)
    for run in stage.members():
        stage.works[run.id] = Work(HOUR_MS)
    for run in stage.members()[:2]:
        stage.world.workers.work(run.id).publishes = True
    stage.resize(1)
    stage.until_runs(1)
    second = stage.world.workers.work(RunId("g-1/1"))
    assert sorted(second.stored) == [1]
    for _ in range(3):
        stage.world.workers.publish(RunId("g-1/0"))
    stage.resize(2)
    stage.until_runs(2)
    assert [it.resume for it in stage.orders(3)] == [5, 5]
    assert [it.checkpoint_of for it in stage.orders(3)] == [None, RunId("g-1/0")]
    assert all(held.attempt == 3 for held in second.stored.values())


def test_a_change_is_given_up_when_who_was_to_join_loses_its_place() -> None:
    stage = Stage(2)
    stage.resize(3)
    assert stage.world.run(lambda: stage.members()[2].target is not None, limit_ms=HOUR_MS)
    target = stage.members()[2].target
    stage.policy.sizes["g"] = 2
    stage.world.cloud.fail(InstanceId(target))
    assert stage.world.run(lambda: stage.job.sizing.members == 2, limit_ms=HOUR_MS)
    assert stage.running() == [0, 1]
    assert stage.job.attempt == 1
    assert "lost its place" in stage.job.sizing.reason


def test_a_master_that_dies_meanwhile_goes_on_with_the_change() -> None:
    stage = Stage(1)
    stage.resize(3)
    assert stage.world.run(lambda: stage.members()[2].target is not None, limit_ms=HOUR_MS)
    stage.world.restart()
    stage.until_runs(3)
    assert stage.job.attempt == 2


def test_a_gang_that_is_done_needs_nobody_who_rests() -> None:
    stage = Stage(2)
    assert stage.world.run(lambda: stage.job.state is JobState.SUCCEEDED)
    assert [run.state.value for run in stage.members()] == ["succeeded"] * 2 + ["cancelled"] * 2
    assert stage.world.run(stage.world.quiet)


def test_more_members_are_done_sooner() -> None:
    def took(size: int) -> int:
        stage = Stage(size)
        assert stage.world.run(lambda: stage.job.state is JobState.SUCCEEDED)
        return stage.job.finished_ms - stage.job.started_ms

    alone, four = took(1), took(4)
    assert abs(alone - HOUR_MS) < 60_000
    assert abs(four - HOUR_MS / 4**0.9) < 60_000


def test_what_has_been_done_counts_however_many_did_it() -> None:
    stage = Stage(4)
    half = stage.job.started_ms + round(HOUR_MS / 4**0.9 / 2)
    assert stage.world.run(lambda: stage.world.timeline.now() >= half)
    stage.resize(1)
    stage.until_runs(1)
    assert stage.world.run(lambda: stage.job.state is JobState.SUCCEEDED)
    rest = stage.job.finished_ms - stage.members()[0].started_ms
    assert HOUR_MS / 4 < rest < HOUR_MS / 2 + 60_000


def test_members_that_are_done_while_the_others_are_stopped_for_good_begin_anew() -> None:
    stage = Stage(4)
    stage.resize(2)
    assert stage.world.run(lambda: stage.job.sizing.members == 2, limit_ms=HOUR_MS)
    for run in stage.members()[:2]:
        agent = stage.world.workers._agents[run.instance]
        (attempt,) = [it for it in agent.present() if it.order.run == run.id]
        agent.finish(attempt)
    assert stage.world.run(lambda: not stage.running(), limit_ms=HOUR_MS)
    stage.until_runs(2)
    assert stage.world.run(lambda: stage.job.state is JobState.SUCCEEDED)


def test_who_has_an_instance_is_found_at_every_moment_of_a_change() -> None:
    stage, sizes = Stage(4), set[int]()
    stage.resize(2)

    def look() -> bool:
        state = stage.world.state
        there = placed(state, GANG)
        assert there == [run for run in state.members(GANG) if run.instance is not None]
        sizes.add(len(there))
        return stage.running() == [0, 1] and stage.job.attempt > 1

    assert stage.world.run(look, limit_ms=HOUR_MS)
    assert {2, 4} <= sizes


def test_the_end_of_a_gang_is_told_while_some_of_its_members_rest() -> None:
    stage = Stage(2, stated_ms=HOUR_MS)
    began = stage.world.timeline.now()
    assert stage.world.run(lambda: stage.world.timeline.now() >= began + 120_000, limit_ms=HOUR_MS)
    now, model = Millis(stage.world.timeline.now()), stage.world.machine.published()
    told, _ = model.outlooks(model.record(GANG, now), now)
    assert {run.state for run in stage.members()} == {RunState.RUNNING, RunState.WAITING}
    assert stage.world.run(lambda: GANG not in stage.world.state.active, limit_ms=3 * HOUR_MS)
    left, expected = stage.world.timeline.now() - now, (told.eta_ms or 0) - now
    assert left / 1.5 <= expected <= left * 1.5
