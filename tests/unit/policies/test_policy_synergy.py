"""Synergy: which instance a waiting task joins, and when it gets one of its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.model.planning.plan import Assign, Hold, Plan
from eva_master.model.planning.snapshot import Snapshot, StandaloneRates
from eva_policies.synergy import POLICY
from eva_wire.values.ids import MILLION, Family, Workload
from tests.fakes.snapshots import Cluster, carried_out, offer, table, task

BOX = offer("box", (0, 16, 64), 0.8)
HALF = offer("half", (0, 8, 32), 0.4)
QUARTER = offer("quarter", (0, 4, 16), 0.2)
BOXES = (BOX, HALF, QUARTER)
SLIM = task("slim", any=(0, 4, 8))
SMALL = task("small", any=(0, 4, 16))
EIGHT = task("eight", any=(0, 8, 32))
TWELVE = task("twelve", any=(0, 12, 48))
"""Worth 0.2, 0.2, 0.4 and 0.8: a twelve needs a box."""


def decide(snapshot: Snapshot, **settings: int) -> Plan:
    return POLICY.build(POLICY.config(**settings)).plan(snapshot, None)[0]


def entries(cluster: Cluster, **settings: int) -> list[object]:
    return list(decide(cluster.snapshot(), **settings).entries)


def bought(plan: Plan) -> list[str]:
    return sorted(launch.offering.type.name for launch in plan.launches)


def test_of_several_instances_it_joins_the_one_that_is_worth_most_for_its_price():
    cluster = Cluster(*BOXES).instance("i", "box").instance("j", "half")
    cluster.job("a", TWELVE, on=["i"]).job("b", task("b", any=(0, 4, 24)), on=["j"])
    cluster.job("n", SLIM)
    # 0.8 + 0.2 for 0.8 on i, 0.4 + 0.2 for 0.4 on j: 1.25 and 1.5, less a twentieth.
    assert entries(cluster) == [Assign("n/0", "j")]
    # 1.25 where nobody is slowed down, and 1.2 where both are, by a fifth.
    peace = {("twelve", ("slim",)): 1.0, ("slim", ("twelve",)): 1.0}
    cluster.throughput = table({**peace, ("b", ("slim",)): 0.8, ("slim", ("b",)): 0.8})
    assert entries(cluster) == [Assign("n/0", "i")]


def test_of_equals_the_one_is_taken_where_what_is_free_is_what_it_needs():
    cluster = Cluster(*BOXES).instance("i", "box").instance("j", "box")
    cluster.job("a", task("a", any=(0, 6, 48)), on=["i"])
    cluster.job("b", task("b", any=(0, 12, 24)), on=["j"])
    # Both are worth 0.8 alone. On i 10 vCPUs and 16 GiB are free, on j 4 and 40.
    wide, tall = task("n", any=(0, 4, 4)), task("n", any=(0, 1, 16))
    assert entries(cluster.job("n", wide)) == [Assign("n/0", "i")]
    cluster.jobs.pop(), cluster.runs.pop()
    assert entries(cluster.job("n", tall)) == [Assign("n/0", "j")]


def test_it_gets_the_cheapest_instance_that_holds_it_if_none_has_room():
    cluster = Cluster(*BOXES).instance("i", "box").job("a", TWELVE, on=["i"]).job("n", EIGHT)
    plan = decide(cluster.snapshot())
    assert (bought(plan), plan.entries) == (["half"], (Assign("n/0", 0),))


def test_it_joins_only_an_instance_that_is_worth_its_price_with_it():
    # 0.8 for a twelve and 0.2, less what they lose, against 0.8.
    for normalised, joins in ((0.81, True), (0.80, True), (0.79, False)):
        cluster = Cluster(*BOXES).instance("i", "box").job("a", TWELVE, on=["i"]).job("n", SMALL)
        cluster.throughput = table(
            {("twelve", ("small",)): normalised, ("small", ("twelve",)): normalised}
        )
        assert (entries(cluster) == [Assign("n/0", "i")]) is joins, normalised
    # A lone small task does not pay for a box, not even with another one.
    cluster = Cluster(*BOXES).instance("i", "box").job("a", SMALL, on=["i"]).job("n", SMALL)
    assert bought(decide(cluster.snapshot())) == ["quarter"]


def test_a_pair_that_was_never_seen_counts_as_the_default():
    cluster = Cluster(*BOXES).instance("i", "box").job("a", TWELVE, on=["i"]).job("n", SMALL)
    assert entries(cluster, default_throughput_ppm=800_000) == [Assign("n/0", "i")]
    assert entries(cluster, default_throughput_ppm=790_000) == [Assign("n/0", 0)]


def test_all_of_a_gang_is_charged_for_a_member_that_is_slowed_down():
    def cluster(*tasks: object) -> Cluster:
        made = Cluster(*BOXES).instance("i", "box")
        for number in range(1, len(tasks)):
            made.instance(f"i{number}", "box")
        places = ["i", *(f"i{number}" for number in range(1, len(tasks)))]
        made.job("gang", *tasks, on=places).job("n", task("n", any=(0, 4, 16)))  # type: ignore[arg-type]
        made.throughput = table({("twelve", ("n",)): 0.9, ("n", ("twelve",)): 1.0})
        return made

    # 0.8 + 0.2 less a tenth of 0.8, then of 1.6: 0.92 and 0.84 are worth 0.8; of 2.4: 0.76 is not.
    assert entries(cluster(TWELVE)) == [Assign("n/0", "i")]
    assert entries(cluster(TWELVE, TWELVE)) == [Assign("n/0", "i")]
    assert entries(cluster(TWELVE, TWELVE, TWELVE)) == [Assign("n/0", 0)]


def test_they_come_in_the_order_of_their_arrival():
    cluster = Cluster(replace(BOX, limit=1), QUARTER)
    cluster.job("a", SMALL).job("b", TWELVE)
    # a has bought its quarter before the box of b is there to be joined.
    assert entries(cluster) == [Assign("a/0", 0), Assign("b/0", 1)]
    late = Cluster(replace(BOX, limit=1), QUARTER).job("b", SMALL).job("a", TWELVE)
    assert entries(late) == [Assign("a/0", 0), Assign("b/0", 0)]


def test_the_urgent_come_first():
    cluster = Cluster(replace(BOX, limit=1)).job("a", TWELVE).job("b", EIGHT, priority=1)
    assert [type(entry) for entry in entries(cluster)] == [Hold, Assign]


def test_nothing_is_ever_moved():
    cluster = Cluster(*BOXES).instance("i", "box").instance("j", "box")
    cluster.job("a", SMALL, on=["i"]).job("b", SMALL, on=["j"])
    assert entries(cluster) == []


def test_a_task_can_be_joined_while_it_starts():
    cluster = Cluster(*BOXES).instance("i", "box", ready=False)
    cluster.job("a", TWELVE, on=["i"], pinned=True, running=False).job("n", SMALL)
    assert entries(cluster) == [Assign("n/0", "i")]


def test_a_gang_is_placed_whole_or_not_at_all():
    cluster = Cluster(replace(BOX, limit=2)).job("gang", TWELVE, TWELVE, TWELVE).job("n", EIGHT)
    kinds = [type(entry) for entry in entries(cluster)]
    assert kinds == [Hold, Hold, Hold, Assign]


def test_the_demand_on_the_family_of_the_instance_counts():
    cluster = Cluster(
        offer("c", (0, 8, 16), 0.36, family="c"), offer("p", (1, 8, 61), 3.06, family="p")
    )
    cluster.instance("i", "p").job("g", task("g", p=(1, 4, 24)), on=["i"])
    spec = task("cpu", c=(0, 4, 8), p=(0, 5, 8))
    assert entries(cluster.job("n", spec)) == [Assign("n/0", 0)]
    fits = task("cpu", c=(0, 4, 8), p=(0, 4, 8))
    cluster = (
        Cluster(*cluster.catalog).instance("i", "p").job("g", task("g", p=(1, 4, 24)), on=["i"])
    )
    assert entries(cluster.job("n", fits)) == [Assign("n/0", "i")]


def test_a_task_of_unknown_throughput_is_alone_until_it_was_measured():
    cluster = Cluster(*BOXES).instance("i", "box").job("a", TWELVE, on=["i"]).job("n", SMALL)
    unknown = replace(cluster.snapshot(), profile=True)
    assert decide(unknown).entries == (Assign("n/0", 0),)
    measured = tuple((Workload(name), Family("any")) for name in ("small", "twelve"))
    for one in measured:
        half = StandaloneRates(((one, MILLION),))
        assert decide(replace(unknown, standalone=half)).entries == (Assign("n/0", 0),)
    both = StandaloneRates(tuple((entry, MILLION) for entry in measured))
    assert decide(replace(unknown, standalone=both)).entries == (Assign("n/0", "i"),)


def test_the_reasons_are_the_tnrp():
    cluster = Cluster(*BOXES).instance("i", "box").job("a", TWELVE, on=["i"]).job("n", SMALL)
    plan = decide(cluster.snapshot())
    (hosting,) = plan.reasons.hostings
    assert [occupant.throughput_ppm for occupant in hosting.occupants] == [950_000, 950_000]
    assert hosting.value_micro_usd_per_hour == pytest.approx(950_000)
    placed = carried_out(cluster.snapshot(), plan)
    assert decide(placed).reasons == plan.reasons
