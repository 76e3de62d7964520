"""Quotas and limits leave room that is kept for a job to that job."""

from __future__ import annotations

from dataclasses import replace

from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.app.sections.building import build_policy
from eva_master.control.settings import Limits, Settings
from eva_master.model.catalog import Purchase
from eva_master.model.fleet.nodes import OwnedNode
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.resources import Resources
from eva_master.model.tenants.quotas import Tenancy, quota_of
from eva_master.testing.job_views import with_values
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, InstanceId, Millis, RunId, Workload
from eva_wire.values.states import RunState
from tests.fakes.snapshots import offer

MINUTE_MS = 60_000
RACK = replace(offer("rack.x", (2, 32, 128), 0, family="rack"), purchase=Purchase.OWNED)
BOX = offer("box.x", (2, 32, 128), 2, family="box")


def cluster(nodes: int, rack_gpus: int, box_gpus: int, **rules: object) -> SimulatedCluster:
    owned = {
        name: OwnedNode(name, RACK, fence_ms=MINUTE_MS)
        for name in (InstanceId(f"n{number}") for number in range(nodes))
    }
    quota = quota_of({"rack": rack_gpus, "box": box_gpus})
    tenancy = Tenancy({"vision": quota}, names=("other",))
    settings = Settings(
        nodes=owned,
        tenancy=tenancy,
        patience={"": 30 * MINUTE_MS},
        **rules,  # type: ignore[arg-type]
    )
    return SimulatedCluster((BOX,), build_policy("eva", {}), settings=settings)


def job(
    name: str, gpus: int, minutes: int, tasks: int = 1, tenant: str = "vision", **more: object
) -> JobSpec:
    need = Resources(gpus, 1_000, 1_024)
    demand = ((Family("box"), need), (Family("rack"), need))
    task = TaskSpec(Workload(name), Program("x"), demand)
    return with_values(
        JobSpec(name, "ann", (task,) * tasks, tenant=tenant, duration_ms=minutes * MINUTE_MS), more
    )


def began_ms(world: SimulatedCluster, run: str) -> int:
    history = world.state.runs[RunId(run)].history
    return min(at for state, at in history if state == RunState.RUNNING)


def test_a_job_for_which_room_is_kept_has_its_tenants_quota_before_its_equals() -> None:
    world = cluster(2, rack_gpus=2, box_gpus=2, limits=Limits(instances_per_user=1))
    world.submit(job("first", 2, 40))
    # The quota would let the first of these buy a box, so room on nodes is kept for the second.
    world.submit(job("buys", 2, 5), at=Millis(60_000))
    world.submit(job("waits", 2, 5), at=Millis(70_000))
    assert world.run(lambda: not world.state.active and world.timeline.now() > MINUTE_MS)
    began = sorted((began_ms(world, "buys-2/0"), began_ms(world, "waits-3/0")))
    assert began[0] < 41 * MINUTE_MS
    assert began[1] < 47 * MINUTE_MS


def test_an_elastic_gang_starts_on_two_families_of_which_each_quota_allows_a_part() -> None:
    world = cluster(2, rack_gpus=1, box_gpus=2)
    world.submit(job("other", 2, 40, tenant="other"))
    world.submit(job("gang", 1, 5, tasks=2, kind=JobKind.GANG, least=1), at=Millis(60_000))
    assert world.run(lambda: not world.state.active and world.timeline.now() > MINUTE_MS)
    assert began_ms(world, "gang-2/0") < 11 * MINUTE_MS
