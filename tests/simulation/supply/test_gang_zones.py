"""Gangs in one zone: refused there, half placed, moved, resized, previewed, and told of."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_lab.runs import named_policy
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.adapters.rpc.server.shown import zones
from eva_master.control.settings import Settings
from eva_master.model.catalog import Catalog
from eva_master.model.job import JobSpec, TaskSpec
from eva_wire.values.ids import Millis, OfferingId, RunId
from tests.fakes.jobs import LARGE, MEDIUM, Script, job
from tests.fakes.models import model_of
from tests.property.previews.cluster import Cluster, compare

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
CENT = 10_000
DISK_MIB = 10_240


def zoned(*zones_: str, **more: object) -> Catalog:
    """Two types in each of some zones."""
    return tuple(
        replace(offering, zone=zone, gb_between_zones=CENT, **more)  # type: ignore[arg-type]
        for zone in zones_
        for offering in (MEDIUM, LARGE)
    )


def world(catalog: Catalog, *jobs: JobSpec, policy: object = None) -> SimulatedCluster:
    made = SimulatedCluster(catalog, policy or named_policy("eva")[0])  # type: ignore[arg-type]
    for spec in jobs:
        made.submit(spec)
    return made


def zones_of(cluster: SimulatedCluster, name: str = "g") -> list[str]:
    """The zone of each member of a gang, where it runs or is about to be."""
    state = cluster.state
    runs = [run for run in state.runs.values() if state.jobs[run.job].spec.name == name]
    places = [run.target or run.instance for run in runs]
    return [state.instances[place].offering.zone for place in places if place is not None]


def started(cluster: SimulatedCluster, name: str = "g") -> bool:
    jobs = cluster.state.jobs.values()
    return any(record.spec.name == name and record.started_ms is not None for record in jobs)


def refuse(cluster: SimulatedCluster, after: dict[str, int]) -> None:
    """Have the cloud refuse a zone's instances after so many."""
    sold: dict[str, int] = {}

    def sold_out(offering: OfferingId) -> bool:
        zone = offering.partition("@")[2].partition("/")[0]
        sold[zone] = sold.get(zone, 0) + 1
        return sold[zone] > after.get(zone, 10**6)

    cluster.cloud.sold_out = sold_out


@pytest.mark.parametrize("had", [0, 1, 2])
def test_a_gang_that_is_refused_in_one_zone_goes_to_another_as_a_whole(had: int) -> None:
    cluster = world(zoned("a", "b"), job("g", 8, 8, 8, minutes=30))
    refuse(cluster, {"a": had})
    assert cluster.run(lambda: started(cluster), limit_ms=HOUR_MS)
    assert zones_of(cluster) == ["b"] * 3
    # Instances bought for a part of it in the first zone are not kept.
    assert cluster.run(lambda: len(cluster.state.live) == 3, limit_ms=HOUR_MS)


def test_a_gang_waits_for_a_zone_while_none_has_room_for_all_of_it() -> None:
    cluster = world(zoned("a", "b"), job("g", 8, 8))
    refuse(cluster, {"a": 1, "b": 1})
    assert not cluster.run(lambda: started(cluster), limit_ms=10 * MINUTE_MS)
    refuse(cluster, {})
    assert cluster.run(lambda: started(cluster), limit_ms=HOUR_MS)
    assert len(set(zones_of(cluster))) == 1


@pytest.mark.parametrize(
    ("spans", "limit", "told"),
    [
        (True, None, "as `zones: any` allows"),
        (False, 1, "since no zone had enough for all of them"),
    ],
)
def test_a_gang_in_several_zones_is_told_why_and_what_traffic_costs(
    spans: bool, limit: int | None, told: str
) -> None:
    catalog = zoned("a", limit=1) + zoned("b", limit=limit)
    cluster = world(catalog, job("g", 8, 8, minutes=30, spans_zones=spans), policy=_apart(catalog))
    assert cluster.run(lambda: started(cluster), limit_ms=HOUR_MS)
    assert sorted(zones_of(cluster)) == ["a", "b"]
    model = model_of(cluster.state)
    record = model.record(next(iter(cluster.state.jobs)), Millis(0))
    assert zones.explain(model, record) == (
        f"its tasks are in 2 zones (a, b), {told}; traffic between them costs $0.01 for each GB,"
        " each way"
    )


def _apart(catalog: Catalog) -> Script:
    """A policy that puts the second member elsewhere than the first."""
    larges = [offering for offering in catalog if offering.type is LARGE.type]
    return Script({}, {"g-1/0": larges[0], "g-1/1": larges[-1]})


def test_a_policy_that_tears_a_gang_apart_has_it_in_one_zone_all_the_same() -> None:
    catalog = zoned("a", "b")
    cluster = world(catalog, job("g", 8, 8, minutes=30), policy=_apart(catalog))
    assert cluster.run(lambda: started(cluster), limit_ms=HOUR_MS)
    assert zones_of(cluster) == ["a", "a"]
    model = model_of(cluster.state)
    assert not zones.explain(model, model.record(next(iter(cluster.state.jobs)), Millis(0)))


def moving(refused: dict[str, int] | None = None) -> tuple[SimulatedCluster, Script]:
    """A gang that runs in zone a under a policy that is told where to have it."""
    catalog = zoned("a", "b")
    script = Script({}, dict.fromkeys(("g-1/0", "g-1/1"), catalog[1]))
    cluster = world(catalog, job("g", 8, 8, minutes=60), policy=script)
    assert cluster.run(lambda: started(cluster), limit_ms=HOUR_MS)
    assert zones_of(cluster) == ["a", "a"]
    script.offerings |= dict.fromkeys("xyz", catalog[3])
    refuse(cluster, refused or {})
    return cluster, script


def replan(cluster: SimulatedCluster) -> None:
    """Have a plan made, for a job that ends at once."""
    cluster.submit(job("other", 2, minutes=0.1))


def test_a_gang_that_runs_is_moved_as_a_whole_or_within_its_zone() -> None:
    cluster, script = moving()
    script.wanted[RunId("g-1/1")] = "x"
    replan(cluster)
    moved = cluster.state.runs[RunId("g-1/1")]
    assert cluster.run(
        lambda: cluster.state.runs[RunId("g-1/1")].moves > moved.moves, limit_ms=HOUR_MS // 4
    )
    assert zones_of(cluster) == ["a", "a"]
    script.wanted |= {RunId("g-1/0"): "y", RunId("g-1/1"): "z"}
    replan(cluster)
    assert cluster.run(lambda: zones_of(cluster) == ["b", "b"], limit_ms=HOUR_MS // 4)


def test_a_gang_that_runs_stays_if_a_member_finds_no_other_room_in_its_zone() -> None:
    cluster, script = moving()
    cluster.state.set_unavailable(
        [offering.id for offering in cluster.state.catalog if offering.zone == "a"],
        Millis(HOUR_MS // 2),
        "refused",
    )
    script.wanted[RunId("g-1/1")] = "x"
    replan(cluster)
    assert not cluster.run(lambda: "b" in zones_of(cluster), limit_ms=HOUR_MS // 4)
    assert not any(run.moves for run in cluster.state.runs.values())


def test_a_move_to_another_zone_is_given_up_by_all_if_one_is_refused() -> None:
    cluster, script = moving({"b": 1})
    script.wanted |= {RunId("g-1/0"): "x", RunId("g-1/1"): "y"}
    replan(cluster)
    seen: set[tuple[str, ...]] = set()

    def torn() -> bool:
        state = cluster.state
        gang = [run for run in state.runs.values() if run.id in ("g-1/0", "g-1/1")]
        seen.add(tuple(zones_of(cluster)))
        here = {state.instances[run.instance].offering.zone for run in gang if run.instance}
        return len(here) > 1

    assert not cluster.run(torn, limit_ms=HOUR_MS // 2)
    assert ("b", "b") in seen
    assert zones_of(cluster) == ["a", "a"]


def test_the_members_that_are_left_go_along_when_a_lost_one_finds_room_elsewhere() -> None:
    cluster = world(zoned("a", "b"), job("g", 8, 8, 8, minutes=60))
    assert cluster.run(lambda: started(cluster), limit_ms=HOUR_MS)
    assert zones_of(cluster) == ["a"] * 3
    refuse(cluster, {"a": 0})
    place = cluster.state.runs[RunId("g-1/1")].instance
    assert place is not None
    cluster.cloud.fail(place)
    job_ = next(iter(cluster.state.jobs.values()))
    assert cluster.run(
        lambda: all(
            (run.attempt, run.state) == (2, "running") for run in cluster.state.members(job_.id)
        ),
        limit_ms=HOUR_MS,
    )
    assert zones_of(cluster) == ["b"] * 3


def test_tasks_without_a_zone_go_with_every_zone() -> None:
    catalog = (replace(LARGE, limit=1), *zoned("b", limit=1))
    cluster = world(catalog, job("g", 8, 8, minutes=30))
    assert cluster.run(lambda: started(cluster), limit_ms=HOUR_MS)
    assert sorted(zones_of(cluster)) == ["b", "local"]


def test_eva_plan_foresees_the_zone_that_a_submission_gets() -> None:
    catalog = zoned("a", "b", limit=2)
    cluster = Cluster(catalog, named_policy("eva")[0], Settings())
    cluster.begin()
    compare(cluster, [job("old", 8)], job("new", 8, 8))


def test_arrays_and_single_tasks_are_in_any_zone() -> None:
    catalog = zoned("a", "b", limit=1)
    cluster = world(catalog, job("g", 8, 8, 8, minutes=30, array=True))
    assert cluster.run(lambda: set(zones_of(cluster)) == {"a", "b"}, limit_ms=HOUR_MS)


def with_disks(catalog: Catalog) -> Catalog:
    """The offerings of a catalog, whose instances get the disk that their first tasks state."""
    return tuple(
        replace(
            offering,
            type=replace(
                offering.type,
                sized_disk=True,
                capacity=replace(offering.type.capacity, disk_mib=DISK_MIB * 10),
            ),
        )
        for offering in catalog
    )


def on_disks(spec: JobSpec) -> JobSpec:
    """A job whose tasks state a disk."""

    def sized(task: TaskSpec) -> TaskSpec:
        demand = ((family, replace(need, disk_mib=DISK_MIB)) for family, need in task.demand)
        return replace(task, demand=tuple(demand))

    return replace(spec, tasks=tuple(map(sized, spec.tasks)))


def test_instances_with_disks_of_their_own_count_as_their_zones() -> None:
    """A zone with a limit holds a gang though this gang's own instances have reached the limit."""
    catalog = with_disks(zoned("a", limit=2) + zoned("b", limit=1))
    script = Script({}, {"g-1/0": catalog[1], "g-1/1": catalog[1], "x": catalog[3]})
    cluster = world(catalog, on_disks(job("g", 8, 8, minutes=60)), policy=script)
    assert cluster.run(lambda: started(cluster), limit_ms=HOUR_MS)
    assert zones_of(cluster) == ["a", "a"]
    script.wanted[RunId("g-1/1")] = "x"
    replan(cluster)
    assert not cluster.run(lambda: "b" in zones_of(cluster), limit_ms=HOUR_MS // 4)
