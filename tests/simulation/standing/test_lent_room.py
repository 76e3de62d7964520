"""Short tasks on an instance of another job, from their start there to its end."""

from __future__ import annotations

from eva_lab.simulator.cluster.work import Work
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.control.settings import Settings
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.job import JobSpec, Latency, Program, TaskSpec
from eva_master.model.resources import Resources
from eva_master.packing.parts.splitter import Splitter, below
from eva_master.policies.no_packing import POLICY as NO_PACKING
from eva_policies.cloudcoaster import POLICY as CLOUDCOASTER
from eva_policies.cloudcoaster.config import Config
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, Price, Workload
from eva_wire.values.states import InstanceState, JobState, RunState

CPU = Family("c")
BOX = Offering(InstanceType("box", CPU, Resources(0, 4_000, 8_192), 1_000, 1_000), Price(1_000_000))
QUICK = Settings(round_gap_ms=1_000, round_period_ms=60_000)


def _job(name: str, tasks: int, cpus: int, seconds: int, latency: Latency) -> JobSpec:
    task = TaskSpec(Workload(name), Program("true"), ((CPU, Resources(0, cpus * 1000, 512)),))
    return JobSpec(
        name,
        "me",
        (task,) * tasks,
        kind=JobKind.ARRAY,
        duration_ms=seconds * 1000,
        latency=latency,
    )


def _over(world: SimulatedCluster, name: str) -> bool:
    jobs = [it for it in world.state.jobs.values() if it.spec.name == name]
    return bool(jobs) and all(it.finished_ms is not None for it in jobs)


def test_guests_leave_an_instance_as_they_found_it() -> None:
    back = NO_PACKING.build(NO_PACKING.config())
    world = SimulatedCluster(
        (BOX,),
        Splitter(CLOUDCOASTER.build(Config()), back, below(90_000), shares=True),
        settings=QUICK,
        work_of=lambda run: Work(600_000 if run.startswith("long") else 5_000),
    )
    world.submit(_job("long", 1, 2, 600, Latency.LONG))
    assert world.run(lambda: any(it.state is RunState.RUNNING for it in world.state.runs.values()))
    for name in ("one", "two"):
        world.submit(_job(name, 2, 1, 5, Latency.SHORT))
        assert world.run(lambda name=name: _over(world, name))  # type: ignore[misc]
        (box,) = world.state.instances.values()
        assert (box.pool, box.drain, box.state) == ("", None, InstanceState.READY)
        short = [it for it in world.state.runs.values() if not it.id.startswith("long")]
        assert {it.pool for it in short} == {"short.shared"}
    assert not _over(world, "long")
    assert world.run(world.quiet)
    assert len(world.state.instances) == 1, "nothing was bought for the short ones"
    assert {it.state for it in world.state.jobs.values()} == {JobState.SUCCEEDED}
