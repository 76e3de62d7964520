"""First in, first out: who stands in the line, who holds it up, and what is bought."""

from __future__ import annotations

from dataclasses import replace

from eva_master.model.catalog import Offering, Purchase
from eva_master.model.planning.plan import Hold, Plan
from eva_master.model.planning.snapshot import Snapshot
from eva_master.policies.fifo import POLICY
from eva_master.testing.plan_checks import check
from eva_master.testing.snapshots import carried_out
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Millis
from tests.fakes.snapshots import Cluster, offer, task

SMALL, LARGE = task("w", any=(0, 1, 1)), task("w", any=(0, 4, 4))
HUGE = task("w", any=(0, 16, 16))
NODE: Offering = replace(offer("n.4", (0, 4, 4), 0.1), purchase=Purchase.OWNED, limit=2)
CLOUD = offer("c.16", (0, 16, 16), 2.0)


def home() -> Cluster:
    """Two nodes of four slots, and a cloud."""
    return Cluster(NODE, CLOUD).instance("n1", "n.4").instance("n2", "n.4")


def planned(cluster: Cluster | Snapshot) -> Plan:
    snapshot = cluster if isinstance(cluster, Snapshot) else cluster.snapshot()
    plan, _ = POLICY.build(POLICY.config()).plan(snapshot, None)
    check(snapshot, plan)
    return plan


def by_arrival(cluster: Cluster, *jobs: str) -> Snapshot:
    """The jobs have come in this order."""
    snapshot = cluster.snapshot()
    times = {job: Millis(number) for number, job in enumerate(jobs)}
    return replace(
        snapshot, jobs=tuple(replace(it, submitted_ms=times[it.id]) for it in snapshot.jobs)
    )


def placed(snapshot: Snapshot, plan: Plan) -> set[str]:
    return {run.id for run in carried_out(snapshot, plan).runs if run.instance is not None}


def test_tasks_stand_in_line_for_the_nodes_by_priority_and_arrival() -> None:
    cluster = home().job("late", *[SMALL] * 9, kind=JobKind.ARRAY).job("early", SMALL)
    cluster.job("urgent", SMALL, priority=1)
    snapshot = by_arrival(cluster, "early", "late", "urgent")
    plan = planned(snapshot)
    (pool,) = plan.pools
    assert (pool.name, pool.members) == ("nodes", ("n1", "n2"))
    assert [(line.pools, line.jobs) for line in plan.lines] == [
        (("nodes",), ("urgent", "early", "late"))
    ]
    assert plan.launches == (), "who fits the nodes waits for them"
    there = placed(snapshot, plan)
    assert there == {"urgent/0", "early/0", *(f"late/{n}" for n in range(6))}


def test_a_gang_takes_room_at_once_or_holds_up_who_comes_after_it() -> None:
    gang = home().job("gang", LARGE, LARGE).job("after", SMALL)
    snapshot = by_arrival(gang, "gang", "after")
    assert placed(snapshot, planned(snapshot)) == {"gang/0", "gang/1"}
    full = home().job("there", SMALL, on=["n1"]).job("before", SMALL)
    full.job("gang", LARGE, LARGE).job("after", SMALL)
    snapshot = by_arrival(full, "there", "before", "gang", "after")
    plan = planned(snapshot)
    assert plan.lines[0].jobs == ("before",)
    assert {entry.run for entry in plan.entries if isinstance(entry, Hold)} == {
        *("gang/0", "gang/1", "after/0"),
    }
    assert plan.launches == (), "the gang fits the nodes"


def test_what_fits_no_node_is_bought_for() -> None:
    snapshot = by_arrival(home().job("huge", HUGE).job("small", SMALL), "huge", "small")
    plan = planned(snapshot)
    assert [launch.offering.type.name for launch in plan.launches] == ["c.16"]
    assert plan.lines[0].jobs == ("small",)
    assert placed(snapshot, plan) == {"huge/0", "small/0"}
    # A gang that is too large for all nodes together, too, however small its members are.
    snapshot = by_arrival(home().job("wide", *[LARGE] * 3).job("small", SMALL), "wide", "small")
    plan = planned(snapshot)
    assert placed(snapshot, plan) == {"wide/0", "wide/1", "wide/2"}
    assert plan.lines[0].jobs == ("small",), "it holds up nobody"


def test_the_rest_of_a_gang_does_not_wait_for_room_that_its_own_members_hold() -> None:
    # Five members of two slots: four fit the nodes at a time, and one of these is there.
    half = task("w", any=(0, 2, 2))
    places = ["n1", None, None, None, None]
    cluster = home().job("gang", *[half] * 5, on=places, running=False)
    snapshot = by_arrival(cluster, "gang")
    plan = planned(snapshot)
    assert placed(snapshot, plan) == {f"gang/{number}" for number in range(5)}
    assert [launch.offering.type.name for launch in plan.launches] == ["c.16"]
    # One that fits beside its members waits for the nodes.
    full = home().job("there", LARGE, on=["n2"])
    full.job("gang", *[half] * 4, on=[*places[:4]], running=False)
    plan = planned(by_arrival(full, "there", "gang"))
    assert plan.launches == ()
    assert len([entry for entry in plan.entries if isinstance(entry, Hold)]) == 3


def test_without_nodes_the_cheapest_instances_with_room_are_bought() -> None:
    cluster = Cluster(CLOUD, offer("c.4", (0, 4, 4), 0.4)).job("a", *[SMALL] * 6)
    plan = planned(cluster)
    assert sorted(it.offering.type.name for it in plan.launches) == ["c.4", "c.4"]
    assert (plan.pools, plan.lines) == ((), ())
