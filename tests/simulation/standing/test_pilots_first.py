"""Tasks that a line names go first, and a plan follows when those have succeeded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.planning.snapshot_builder import snapshot
from eva_master.control.settings import Settings
from eva_master.model.catalog import InstanceType, Offering, Purchase
from eva_master.model.events import CancelRequested
from eva_master.model.fleet.nodes import NODE_ZONE, OwnedNode
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.planning.estimate import Estimates, Source
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Again, Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.planning.standing import Line, Pool
from eva_master.model.records import TaskRun
from eva_master.model.resources import Resources
from eva_master.ports import Policy
from eva_policies.slearn import POLICY
from eva_policies.slearn.sampling import chosen
from eva_policies.slearn.sizes import work_of
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, InstanceId, JobId, Millis, Price, RunId, Workload
from eva_wire.values.states import RunState

CPU, SLOT = Family("own"), Resources(0, 1_000, 1_024)
BOX = Offering(InstanceType("own.1", CPU, SLOT), Price(0), NODE_ZONE, Purchase.OWNED)
TASK = TaskSpec(Workload("w"), Program("true"), ((CPU, SLOT),))
SELDOM = Settings(round_gap_ms=1_000, round_period_ms=10**9, profile=False)
"""There is no plan but for what happens."""
JOB = JobId("job-1")


def nodes(count: int) -> dict[InstanceId, OwnedNode]:
    """Machines of one slot."""
    return {(name := InstanceId(f"n{it}")): OwnedNode(name, BOX, 600_000) for it in range(count)}


class Named:
    """A policy by which certain tasks of a job run first, and all others once these are done."""

    name = "named"

    def __init__(self, *indexes: int) -> None:
        self.indexes = indexes
        self.seen: list[tuple[Millis, JobView]] = []

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        """See `eva_master.ports.Policy`."""
        jobs = tuple(job.id for job in snapshot.jobs)
        self.seen += [(snapshot.now_ms, job) for job in snapshot.jobs]
        pool = Pool("nodes", tuple(it.id for it in snapshot.instances), "they are there")
        first = all(job.progress.succeeded < len(self.indexes) for job in snapshot.jobs)
        line = Line(("nodes",), jobs)
        if not first:
            return Plan(pools=(pool,), lines=(line,)), memory
        line = replace(line, chosen=tuple((job, self.indexes) for job in jobs))
        milestones = tuple((job, len(self.indexes)) for job in jobs)
        return Plan(pools=(pool,), lines=(line,), again=Again(milestones=milestones)), memory


class World:
    """A cluster of nodes with one slot each, with arrays whose tasks take what is said here."""

    def __init__(
        self,
        policy: Policy,
        slots: int,
        estimates: Estimates = Estimates.PILOTS,
        latency_ms: int = 100,
    ) -> None:
        self._seconds: dict[str, list[int]] = {}
        settings = replace(SELDOM, nodes=nodes(slots), estimates=estimates)
        self.cluster = SimulatedCluster(
            (), policy, settings=settings, work_of=self._work_of, latency_ms=latency_ms
        )

    def _work_of(self, run: RunId) -> Work:
        job, _, index = run.partition("/")
        seconds = self._seconds[job.rpartition("-")[0]]
        return Work(seconds[int(index)] * 1_000, tells_steps=False)

    def submit(self, name: str, *seconds: int, at_s: int = 0) -> None:
        """An array, with what each of its tasks takes."""
        self.submit_tasks(name, (TASK,) * len(seconds), *seconds, at_s=at_s)

    def submit_tasks(
        self, name: str, tasks: tuple[TaskSpec, ...], *seconds: int, at_s: int = 0
    ) -> None:
        """An array of tasks that may differ, likewise."""
        self._seconds[name] = list(seconds)
        spec = JobSpec(name, "me", tasks, kind=JobKind.ARRAY)
        self.cluster.submit(spec, at=Millis(at_s * 1_000))

    @property
    def runs(self) -> list[TaskRun]:
        """The task runs that a place was found for, those that began first standing first."""
        began = [it for it in self.cluster.state.runs.values() if _began_ms(it) is not None]
        return sorted(began, key=lambda it: (_began_ms(it) or 0, it.id))

    def finished_ms(self, name: str) -> Millis | None:
        """When a job ended."""
        jobs = (it for it in self.cluster.state.jobs.values() if it.spec.name == name)
        return next((it.finished_ms for it in jobs), None)

    def until_over(self, *names: str) -> None:
        """Go on until jobs have ended."""
        over = all
        assert self.cluster.run(lambda: over(self.finished_ms(it) is not None for it in names))


def _began_ms(run: TaskRun) -> int | None:
    return next((at for state, at in run.history if state == RunState.STARTING.value), None)


def test_nobody_but_who_is_named_takes_room_from_a_line() -> None:
    policy = Named(4, 1)
    world = World(policy, slots=5)
    world.submit("job", *[60] * 6)
    assert world.cluster.run(lambda: len(world.runs) == 2)
    assert {it.index for it in world.runs} == {1, 4}, "though five slots are free"
    assert world.cluster.run(lambda: len(world.runs) > 2)
    first = [it for it in world.cluster.state.runs.values() if it.index in (1, 4)]
    assert {it.state for it in first} == {RunState.SUCCEEDED}
    world.until_over("job")
    assert len(world.runs) == 6


def test_a_plan_follows_a_milestone_and_no_other_end_of_a_task() -> None:
    policy = Named(0, 1, 2)
    world = World(policy, slots=3)
    world.submit("job", 60, 120, 180, 60, 60, 60)
    world.until_over("job")
    # On arrival, and once all three are done.
    shown = [(job.progress.succeeded, job.progress.pilots_left) for _, job in policy.seen]
    assert shown[0] == (0, None)
    assert shown[-1] == (3, 0)
    asked = [at for at, job in policy.seen if job.progress.succeeded]
    assert len(asked) == 1
    ends = [it.history[-1][1] for it in world.runs if it.index == 2]
    assert asked[0] - ends[0] <= 1_000


def test_a_milestone_that_was_reached_while_the_plan_was_made_is_not_missed() -> None:
    class Next(Named):
        """It waits for one more task each time, and for one of a job that nobody knows."""

        def plan(
            self, snapshot: Snapshot, memory: PolicyMemory | None
        ) -> tuple[Plan, PolicyMemory | None]:
            plan, memory = super().plan(snapshot, memory)
            more = tuple((job.id, job.progress.succeeded + 1) for job in snapshot.jobs)
            return replace(plan, again=Again(milestones=(*more, (JobId("nobody-9"), 1)))), memory

    policy = Next(0, 1)
    world = World(policy, slots=2, latency_ms=100_000)
    world.submit("job", 60, 120, 60)
    # The second task ends while the plan is made that the first one has caused.
    assert world.cluster.run(lambda: len(world.runs) == 3)
    assert [job.progress.succeeded for _, job in policy.seen] == [0, 1, 2]
    asked = [at for at, _ in policy.seen]
    assert asked[2] - asked[1] == 100_000, "at once"


def test_a_milestone_that_the_policy_saw_reached_causes_no_plan() -> None:
    class Content(Named):
        """It waits for what it sees that there is."""

        def plan(
            self, snapshot: Snapshot, memory: PolicyMemory | None
        ) -> tuple[Plan, PolicyMemory | None]:
            plan, memory = super().plan(snapshot, memory)
            there = tuple((job.id, job.progress.succeeded) for job in snapshot.jobs)
            return replace(plan, again=Again(milestones=there)), memory

    policy = Content()
    world = World(policy, slots=2)
    world.submit("job", 60, 120, 60)
    world.until_over("job")
    assert [job.progress.succeeded for _, job in policy.seen] == [0]


# -- the policy ------------------------------------------------------------------------------------

LEARN = POLICY.config(estimator="pilots", ratio_ppm=50_000)


def learned(config: object = LEARN, restart_after: int = 0) -> World:
    """Two arrays on four slots, of which the one that came later has much less to do.

    Args:
        config: The policy's.
        restart_after: Once so many tasks have begun the master dies; 0 for never.
    """
    world = World(POLICY.build(config), slots=4)
    world.submit("long", *[400] * 40)
    world.submit("short", *[20] * 60, at_s=5)
    if restart_after:
        assert world.cluster.run(lambda: len(world.runs) >= restart_after)
        world.cluster.restart()
    world.until_over("long", "short")
    return world


def test_pilots_have_the_job_with_less_to_do_go_first() -> None:
    world = learned()
    first = {it.index for it in world.runs[:4]}
    assert first == {*chosen(JobId("long-1"), 40, 2, 1), 0, 1}, "two pilots, and who came first"
    short, long = world.finished_ms("short"), world.finished_ms("long")
    assert short is not None
    assert long is not None
    assert short < long / 3


def test_by_arrival_it_is_the_other_way_about() -> None:
    config = POLICY.config(**POLICY.presets["fifo"])
    world = learned(config)
    order = [it.job for it in world.runs]
    assert order == ["long-1"] * 40 + ["short-2"] * 60


@pytest.mark.parametrize("restart_after", [1, 3, 6, 20, 60])
def test_a_master_that_restarts_in_the_middle_changes_nothing_in_the_end(
    restart_after: int,
) -> None:
    plain, again = learned(), learned(restart_after=restart_after)
    for world in (plain, again):
        assert {it.state for it in world.cluster.state.runs.values()} == {RunState.SUCCEEDED}
        assert {it.attempt for it in world.cluster.state.runs.values()} == {1}
        assert len(world.runs) == 100

    def order(world: World) -> list[str]:
        return sorted(("long", "short"), key=lambda it: world.finished_ms(it) or 0)

    assert order(plain) == order(again)
    for name in ("long", "short"):
        expected, found = plain.finished_ms(name), again.finished_ms(name)
        assert expected is not None
        assert found == pytest.approx(expected, abs=400_000), "but for one task"
    taught = [it.cluster.state.learned.run_times.of("me").spreads for it in (plain, again)]
    assert taught[0].keys() == taught[1].keys()


def test_pilots_are_the_same_ones_after_a_restart() -> None:
    world = World(POLICY.build(LEARN), slots=1)
    world.submit("job", *[60] * 100)
    pilots = set(chosen(JOB, 100, 5, 1))
    assert world.cluster.run(lambda: len(world.runs) == 3)
    world.cluster.restart()
    assert world.cluster.run(lambda: len(world.runs) == 5)
    assert {it.index for it in world.runs} == pilots


def test_a_job_that_is_cancelled_while_it_waits_for_pilots_leaves_nothing_behind() -> None:
    world = World(POLICY.build(LEARN), slots=1)
    world.submit("job", *[60] * 100)
    world.submit("next", *[60] * 3, at_s=10)
    assert world.cluster.run(lambda: len(world.runs) == 2)
    world.cluster.inbox.post(CancelRequested("c", JOB))
    world.until_over("job", "next")
    state = world.cluster.state
    assert state.jobs[JOB].state == "cancelled"
    assert state.finished_tasks.pilots_left(JOB) is None
    assert world.cluster.run(lambda: world.cluster.state.memories.get("") is not None)
    assert state.memories.get("") is not None
    sampled = state.memories[""].data["sampled"]
    assert isinstance(sampled, dict)
    assert JOB not in sampled


def test_what_policies_are_told_comes_from_pilots_alone_at_first() -> None:
    class Watched:
        """Remembers the first estimate."""

        name = "watched"

        def __init__(self) -> None:
            self._inner = POLICY.build(LEARN)
            self.first: JobView | None = None

        def plan(
            self, snapshot: Snapshot, memory: PolicyMemory | None
        ) -> tuple[Plan, PolicyMemory | None]:
            for job in snapshot.jobs:
                if self.first is None and job.progress.estimate is not None:
                    self.first = job
            return self._inner.plan(snapshot, memory)

    policy = Watched()
    world = World(policy, slots=4)
    pilots = chosen(JOB, 40, 2, 1)
    # Tasks that are no pilots fill the other slots, and take a third of the time.
    world.submit("job", *[300 if it in pilots else 100 for it in range(40)])
    world.until_over("job")
    assert policy.first is not None
    assert policy.first.progress.estimate is not None
    assert policy.first.progress.estimate.source is Source.PILOTS
    assert policy.first.progress.succeeded > policy.first.progress.estimate.tasks
    assert policy.first.progress.estimate.mean_ms == pytest.approx(300_000, rel=0.02)


def test_of_several_workloads_each_has_pilots_and_is_known_by_them() -> None:
    world = World(POLICY.build(LEARN), slots=2)
    fast = replace(TASK, workload=Workload("fast"))
    each = [200, 20] * 20
    world.submit_tasks("job", (TASK, fast) * 20, *each)
    left = world.cluster.state.finished_tasks.pilots_left
    assert world.cluster.run(lambda: left(JOB) == 0)
    state = world.cluster.state
    seen = snapshot(state, world.cluster.timeline.now(), SELDOM)
    (job,) = seen.jobs
    assert job.array.kinds == (tuple(range(0, 40, 2)), tuple(range(1, 40, 2)))
    expected = {
        it.task.workload: it.remaining.at_since_ms
        for it in seen.runs
        if it.remaining is not None and it.instance is None
    }
    assert expected == {
        "w": pytest.approx(200_000, rel=0.05),
        "fast": pytest.approx(20_000, rel=0.05),
    }
    work = work_of(job, seen.runs, seen.now_ms)
    # Not forty times what the slow ones take: 4,400 s.
    assert work.whole_ms == pytest.approx(4_400_000, rel=0.1)
    world.until_over("job")
