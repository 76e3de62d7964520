"""Jobs that arrive stand in a line that is open to them at once, before any plan is about them."""

from __future__ import annotations

import pytest

from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.settings import Settings
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.job import JobSpec, Latency, Program, TaskSpec
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.records import Job, TaskRun
from eva_master.model.resources import Resources
from eva_master.packing.parts.splitter import Splitter
from eva_master.policies.no_packing import POLICY as NO_PACKING
from eva_master.ports import Policy
from eva_policies.cloudcoaster import POLICY as CLOUDCOASTER
from eva_policies.cloudcoaster.config import Config
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, Price, Workload
from eva_wire.values.states import RunState

CPU = Family("c")
BOX = Offering(InstanceType("box", CPU, Resources(0, 4_000, 8_192), 1_000, 1_000), Price(1_000_000))
SELDOM = Settings(round_gap_ms=60_000, round_period_ms=7_200_000)
"""Rounds are a minute apart at least."""
SECONDS = {"first": 5, "quick": 5, "many": 80, "long": 600}
"""For how long a task of each job runs."""


class Watched:
    """A policy that remembers what it was shown."""

    def __init__(self, inner: Policy) -> None:
        self._inner = inner
        self.seen: list[Snapshot] = []

    @property
    def name(self) -> str:
        """See `eva_master.ports.Policy`."""
        return self._inner.name

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        """See `eva_master.ports.Policy`."""
        self.seen.append(snapshot)
        return self._inner.plan(snapshot, memory)


class World:
    """A cluster with room for four short tasks that nobody uses."""

    def __init__(self, latency_ms: int = 0) -> None:
        self.back = Watched(NO_PACKING.build(NO_PACKING.config()))
        self.front = Watched(CLOUDCOASTER.build(Config(slots=8)))
        self.cluster = SimulatedCluster(
            (BOX,),
            Splitter.of_short(self.front, self.back, 90_000, shares=True),
            settings=SELDOM,
            latency_ms=latency_ms,
            work_of=lambda run: Work(SECONDS[run.partition("-")[0]] * 1_000),
        )
        # The first round is before it comes, the second has a box bought.
        self.submit("first", 1)
        self.until_over("first")
        assert [it.pool for it in self.cluster.state.instances.values()] == ["short.steady"]
        self.rounds = self.cluster.state.counters.rounds

    def submit(self, name: str, tasks: int, latency: Latency = Latency.SHORT) -> None:
        """A user submits an array of tasks of one CPU."""
        task = TaskSpec(Workload(name), Program("true"), ((CPU, Resources(0, 1_000, 512)),))
        self.cluster.submit(
            JobSpec(
                name,
                "me",
                (task,) * tasks,
                kind=JobKind.ARRAY,
                duration_ms=SECONDS[name] * 1_000,
                latency=latency,
            )
        )

    def job(self, name: str) -> Job:
        """The job of a name."""
        (found,) = (it for it in self.cluster.state.jobs.values() if it.spec.name == name)
        return found

    def runs(self, name: str) -> list[TaskRun]:
        """Its task runs to which something has happened."""
        state = self.cluster.state
        return [it for it in state.runs.values() if state.jobs[it.job].spec.name == name]

    def until_over(self, name: str) -> None:
        """Go on until a job has ended."""
        assert self.cluster.run(
            lambda: (
                any(it.spec.name == name for it in self.cluster.state.jobs.values())
                and self.job(name).finished_ms is not None
            )
        )


@pytest.fixture
def world() -> World:
    return World()


def _began_ms(run: TaskRun) -> int:
    return next(at for state, at in run.history if state == RunState.STARTING.value)


def test_a_job_that_finds_room_needs_no_plan(world: World) -> None:
    before = world.cluster.state.counters
    world.submit("quick", 4)
    world.until_over("quick")
    job = world.job("quick")
    assert job.finished_ms is not None
    assert {_began_ms(run) - job.submitted_ms for run in world.runs("quick")} == {0}
    assert world.cluster.state.counters.rounds == world.rounds
    after = world.cluster.state.counters
    assert after.arrivals == before.arrivals, "no policy has seen it"
    assert after.completions == before.completions


def test_who_finds_no_room_is_planned_for(world: World) -> None:
    world.submit("many", 9)
    assert world.cluster.run(lambda: len([r for r in world.runs("many") if r.attempt]) == 4)
    assert world.cluster.state.counters.rounds == world.rounds
    arrivals = world.cluster.state.counters.arrivals
    world.until_over("many")
    assert world.cluster.state.counters.rounds > world.rounds
    assert len(world.cluster.state.instances) > 1, "the others got room of their own"
    assert world.cluster.state.counters.arrivals == arrivals + 1
    assert [it.joined for it in world.front.seen if it.joined] == [{world.job("many").id}]
    shown = {job.id for seen in world.back.seen for job in seen.jobs}
    assert world.job("many").id not in shown, "it was the front policy's from the first"


def test_long_jobs_are_not_let_in(world: World) -> None:
    world.submit("long", 1, Latency.LONG)
    world.until_over("long")
    (run,) = world.runs("long")
    assert run.pool == ""
    job = world.job("long")
    assert _began_ms(run) - job.submitted_ms > 0
    assert job.id in {it.id for seen in world.back.seen for it in seen.jobs}


def test_a_plan_that_was_not_about_a_job_leaves_it_in_line() -> None:
    world = World(latency_ms=7_000)
    world.submit("long", 1, Latency.LONG)
    asked = len(world.front.seen)
    assert world.cluster.run(lambda: len(world.front.seen) > asked)
    assert {job.spec.name for job in world.cluster.state.jobs.values()} >= {"long"}
    world.submit("many", 9)
    assert world.cluster.run(lambda: any(run.target for run in world.runs("long")))
    state, job = world.cluster.state, world.job("many")
    assert job.id not in {it.id for seen in world.front.seen for it in seen.jobs}
    (place,) = state.membership.queued[job.id]
    assert place.line.jobs[place.place] == job.id
    world.until_over("many")
    assert all(run.state is RunState.SUCCEEDED for run in world.runs("many"))
    assert state.counters.arrivals == 3
