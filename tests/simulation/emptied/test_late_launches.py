"""Nothing is launched for tasks that end, as stated or measured, before it is up."""

from __future__ import annotations

import pytest

from eva_lab.simulator.cluster.delays import EqualDelays
from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.app.policy_registry import policies
from eva_master.control.settings import Settings
from eva_master.model.catalog import Catalog, InstanceType, Offering
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.resources import Resources
from eva_master.packing.elastic.fixed import built
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, Price, RunId, Workload

C = Family("c")


def _sold(cpus: int, price: float, acquisition_s: int, setup_s: int) -> Offering:
    machine = InstanceType(
        f"box.{cpus}",
        C,
        Resources(0, cpus * 1_000, cpus * 2_048),
        acquisition_ms=acquisition_s * 1_000,
        setup_ms=setup_s * 1_000,
    )
    return Offering(machine, Price(round(price * 1_000_000)))


CATALOG: Catalog = (_sold(2, 0.11, 11, 118), _sold(4, 0.18, 18, 111))


class World(SimulatedCluster):
    """Jobs whose tasks report steps every five seconds."""

    def __init__(self, told: bool) -> None:
        kind = policies()["eva"]
        self._told = told
        self._seconds: dict[str, int] = {}
        super().__init__(
            CATALOG,
            built(kind, kind.config()),
            settings=Settings(round_gap_ms=5_000, window_ms=30_000),
            delays=EqualDelays(fetch_ms=2_000, start_ms=5_000, stop_ms=3_000, report_ms=5_000),
            work_of=self._work,
        )

    def _work(self, run: RunId) -> Work:
        return Work(self._seconds[run.rsplit("-", 1)[0]] * 1_000)

    def add(
        self,
        name: str,
        seconds: int,
        *,
        at_s: int = 0,
        tasks: int = 1,
        array: bool = False,
        cpus: int = 2,
    ) -> None:
        """Have a job submitted."""
        self._seconds[name] = seconds
        task = TaskSpec(Workload("w"), Program("true"), ((C, Resources(0, cpus * 1_000, 1_024)),))
        spec = JobSpec(
            name,
            "me",
            (task,) * tasks,
            kind=JobKind.ARRAY if array else JobKind.GANG,
            duration_ms=seconds * 1_000 if self._told else None,
        )
        self.timeline.after(at_s * 1_000 - self.timeline.now(), lambda: self.submit(spec))

    def play(self, jobs: int) -> list[str]:
        """Run until all has ended; returns the types that were launched."""

        def over() -> bool:
            return self.state.counters.jobs == jobs and self.quiet()

        assert self.run(over, limit_ms=86_400_000)
        return sorted(it.offering.type.name for it in self.cloud.bill().values())


def _unused(world: World) -> list[str]:
    """Types of the instances on which no task ever ran."""
    used = {place for run in world.state.runs.values() for _, place in run.places}
    return [it.offering.type.name for name, it in world.cloud.bill().items() if name not in used]


@pytest.mark.parametrize("told", [True, False], ids=["stated", "measured"])
@pytest.mark.parametrize(
    ("second_s", "third"), [(20, False), (20, True), (60, True), (100, True)], ids=str
)
@pytest.mark.parametrize(("tasks", "array"), [(1, False), (2, True), (2, False)], ids=str)
def test_jobs_that_are_nearly_done_stay_where_they_are(
    told: bool, second_s: int, third: bool, tasks: int, array: bool
) -> None:
    world = World(told)
    world.add("a", 135, tasks=tasks, array=array)
    world.add("b", 128, at_s=second_s, tasks=tasks, array=array)
    if third:  # Its arrival and end have everything planned anew.
        world.add("c", 10, at_s=200)
    world.play(2 + third)
    # The third job may get an instance of its own, and then one that empties sooner.
    assert _unused(world) in ([], ["box.2"] if third else [])
    if told:  # What is measured is known too late for some of the moves that do not pay.
        assert not any(run.moves for run in world.state.runs.values())


def test_a_job_with_much_left_moves_all_the_same() -> None:
    world = World(told=True)
    world.add("a", 3_600)
    world.add("b", 3_600, at_s=20)
    assert "box.4" in world.play(2)
    assert any(run.moves for run in world.state.runs.values())


def _beside_one_that_ends(third_s: int) -> World:
    """Two long jobs that would share a larger instance, which a third one has to itself."""
    world = World(told=True)
    world.add("a", 3_600)
    world.add("b", 3_600, at_s=20)
    world.add("c", third_s, at_s=30, cpus=4)
    return world


def test_an_instance_that_is_about_to_empty_is_awaited_by_jobs_that_run() -> None:
    world = _beside_one_that_ends(100)
    assert world.play(3) == ["box.2", "box.2", "box.4"]
    assert _unused(world) == []
    assert {world.state.runs[RunId(f"{name}/0")].moves for name in ("a-1", "b-2")} == {1}


def test_an_instance_that_empties_long_after_is_not_awaited() -> None:
    assert _beside_one_that_ends(1_200).play(3) == ["box.2", "box.2", "box.4", "box.4"]
