"""The first jobs of a workload that nobody knows yet: what they cost, in the cloud's own books."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_lab.simulator.cluster.delays import EqualDelays
from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.app.policy_registry import policies
from eva_master.control.settings import Settings
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.resources import Resources
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, Price, RunId, Workload
from tests.fakes.learned.lessons import lessons_of, owner_of

C7I = Family("c7i")
MINUTE_MS = 60_000
DELAYS = EqualDelays(fetch_ms=0, start_ms=1_000, stop_ms=1_000, report_ms=5_000)


def sold(name: str, cpus: int, price: int) -> Offering:
    size = Resources(0, cpus * 1000, cpus * 2048)
    kind = InstanceType(f"c7i.{name}", C7I, size, acquisition_ms=10_000, setup_ms=50_000)
    return Offering(kind, Price(price), minimum_ms=60_000)


CATALOG = (sold("large", 2, 89_250), sold("xlarge", 4, 178_500), sold("2xlarge", 8, 357_000))


def sleeper(workload: str = "sleep", **more: bool) -> TaskSpec:
    return TaskSpec(
        Workload(workload), Program("sleep 60"), ((C7I, Resources(0, 1000, 1024)),), **more
    )


class World(SimulatedCluster):
    """A cluster whose programs report no steps unless told otherwise."""

    def __init__(self, policy: str, *, steps_per_s: float = 0.0, minutes: float = 1) -> None:
        kind = policies()[policy]
        super().__init__(
            CATALOG,
            kind.build(kind.config()),
            settings=Settings(profile=True),
            delays=DELAYS,
            work_of=lambda _run: Work(minutes * MINUTE_MS, steps_per_s=steps_per_s),
        )

    def array(self, name: str, tasks: int, **more: bool) -> None:
        spec = sleeper(**more)
        self.submit(JobSpec(name, "me", (spec,) * tasks, kind=JobKind.ARRAY))

    def over(self) -> bool:
        return self.quiet() and bool(self.state.jobs)

    def paid(self) -> int:
        """In micro-dollars times milliseconds per hour, by the cloud's own times."""
        assert self.run(self.over, limit_ms=24 * 60 * MINUTE_MS)
        total = 0
        for machine in self.cloud.bill().values():
            assert machine.up_ms is not None
            assert machine.gone_ms is not None
            lived = max(machine.gone_ms - machine.up_ms, machine.offering.minimum_ms)
            total += lived * machine.offering.price
        return total


def cost(policy: str, tasks: int = 12, **more: bool) -> int:
    world = World(policy)
    world.array("a", tasks, **more)
    return world.paid()


@pytest.mark.parametrize("policy", ["eva", "eva_published"])
def test_a_first_array_of_short_tasks_saves(policy: str) -> None:
    assert cost(policy) <= 0.6 * cost("no_packing")


def test_a_first_loop_of_jobs_saves_as_well() -> None:
    """Twelve jobs of one workload, submitted one after the other."""
    paid = {}
    for policy in ("eva", "no_packing"):
        world = World(policy)
        for number in range(12):
            spec = JobSpec(f"job-{number}", "me", (sleeper(),), kind=JobKind.GANG)
            world.timeline.after(number * 500, lambda s=spec, w=world: w.submit(s))
        world.run(lambda w=world: len(w.state.jobs) == 12)
        paid[policy] = world.paid()
    assert paid["eva"] <= 0.6 * paid["no_packing"]


def _profiled(world: World) -> bool:
    return world.state.figures.resolved.profiled(owner_of(world.state), Workload("sleep"))


def test_the_second_loop_needs_nobody_alone() -> None:
    """A task that ended without a step reported told that its workload has none."""
    world = World("eva")
    world.array("a", 1)
    world.paid()
    assert _profiled(world)
    before = world.cloud.launches
    world.array("b", 12)
    assert world.run(lambda: len(world.state.jobs) == 2)
    world.paid()
    assert world.cloud.launches - before == 6


def test_a_job_that_states_it_is_packed_at_once() -> None:
    world = World("eva")
    world.array("a", 12, reports_steps=False)
    world.paid()
    assert world.cloud.launches == 6


def test_one_is_measured_alone_while_the_others_share_and_then_all_are_judged() -> None:
    world = World("eva", steps_per_s=10.0, minutes=60)
    world.array("a", 12)
    state = world.state
    assert world.run(
        lambda: all(it.state == "running" for it in state.runs.values()) and state.runs
    )
    by_place = [len(world.state.occupants(name)) for name in world.state.live]
    assert sorted(by_place) == [1, 1, 2, 2, 2, 2, 2]
    assert not _profiled(world)
    assert world.run(lambda: _profiled(world))
    # What company does to them is learned from now on, and the two that are alone need not be.
    assert world.run(lambda: lessons_of(world.state).throughput.observed, limit_ms=10 * MINUTE_MS)
    assert world.run(lambda: len(world.state.live) == 6, limit_ms=20 * MINUTE_MS)


def test_whoever_is_measured_stays_alone_though_others_come() -> None:
    world = World("eva", steps_per_s=10.0, minutes=60)
    world.array("a", 1)
    assert world.run(lambda: bool(world.state.live))
    (first,) = world.state.live
    for number in range(5):
        world.array(f"b{number}", 1)
        moment = world.timeline.now() + 10_000
        world.timeline.after(10_000, lambda: None)
        world.run(lambda at=moment: world.timeline.now() >= at)
        assert [run.id for run in world.state.places.targeting(first)] == [RunId("a-1/0")]
    assert world.run(lambda: _profiled(world))


def test_when_the_first_ends_too_soon_the_next_one_is_measured() -> None:
    world = World("eva", steps_per_s=10.0, minutes=0.5)
    world.array("short", 1)
    world.paid()
    assert not _profiled(world)
    spec = replace(sleeper(), workload=Workload("sleep"))
    world.submit(JobSpec("next", "me", (spec,) * 3, kind=JobKind.ARRAY))
    assert world.run(lambda: len(world.state.jobs) == 2)
    assert world.run(
        lambda: all(run.target for run in world.state.members(next(iter(world.state.active))))
    )
    assert sorted(len(world.state.places.targeting(name)) for name in world.state.live) == [1, 2]
