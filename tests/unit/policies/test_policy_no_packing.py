"""One instance per task."""

from __future__ import annotations

from dataclasses import replace

from eva_master.model.planning.plan import Assign, Hold, Plan
from eva_master.model.planning.snapshot import Snapshot, StandaloneRates
from eva_master.policies.no_packing import POLICY
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, Workload
from tests.fakes.snapshots import (
    START,
    T1,
    T2,
    T3,
    T4,
    TABLE_3,
    Cluster,
    carried_out,
    offer,
    task,
)


def plan(snapshot: Snapshot) -> Plan:
    return POLICY.build(POLICY.config()).plan(snapshot, None)[0]


def bought(decision: Plan) -> list[str]:
    return sorted(launch.offering.type.name for launch in decision.launches)


def test_every_task_of_table_3_gets_its_reservation_price_type():
    snapshot = Cluster(*TABLE_3).job("1", T1).job("2", T2).job("3", T3).job("4", T4).snapshot()
    decision = plan(snapshot)
    assert bought(decision) == ["it1", "it2", "it3", "it4"]
    assert sum(launch.offering.price for launch in decision.launches) == 16_200_000
    assert plan(carried_out(snapshot, decision)) == Plan()


def test_running_tasks_stay_even_where_they_pay_too_much():
    cluster = Cluster(*TABLE_3).instance("i", "it1").job("4", T4, on=["i"])
    assert plan(cluster.snapshot()) == Plan()


def test_free_room_is_left_alone_but_an_empty_instance_is_used():
    cluster = Cluster(*TABLE_3).instance("i", "it1").instance("j", "it2")
    cluster.job("1", T1, on=["i"]).job("2", T2).job("4", T4)
    decision = plan(cluster.snapshot())
    assert decision.entries == (Assign("2/0", "j"), Assign("4/0", 0))
    assert bought(decision) == ["it4"]


def test_a_limit_that_is_reached_sends_the_task_elsewhere_or_holds_it():
    one = offer("small", (0, 4, 16), 0.4, limit=1)
    large = offer("large", (0, 8, 32), 0.8, limit=1)
    cluster = Cluster(one, large)
    for name in "abc":
        cluster.job(name, task(any=(0, 4, 4)))
    decision = plan(cluster.snapshot())
    assert bought(decision) == ["large", "small"]
    reason = "limit of large@local/on-demand, small@local/on-demand reached"
    assert decision.entries[2] == Hold("c/0", reason)


def test_a_gang_that_does_not_fit_takes_nothing_from_the_next_job():
    spec = task(any=(0, 4, 4))
    cluster = Cluster(offer("small", (0, 4, 16), 0.4, limit=2))
    cluster.job("a", spec, spec, spec).job("b", spec, spec)
    decision = plan(cluster.snapshot())
    assert [type(entry) for entry in decision.entries] == [Hold, Hold, Hold, Assign, Assign]
    assert "its gang waits for a/2" in decision.entries[0].reason


def test_an_array_is_placed_as_far_as_it_goes():
    spec = task(any=(0, 4, 4))
    cluster = Cluster(offer("small", (0, 4, 16), 0.4, limit=2))
    cluster.job("a", spec, spec, spec, kind=JobKind.ARRAY)
    assert [type(entry) for entry in plan(cluster.snapshot()).entries] == [Assign, Assign, Hold]


def test_what_is_out_of_stock_is_not_bought():
    small = replace(TABLE_3[3], unavailable_until=START + 1)
    assert bought(plan(Cluster(small, TABLE_3[2]).job("4", T4).snapshot())) == ["it3"]


def test_pinned_copies_are_left_alone():
    cluster = Cluster(*TABLE_3).job("4", T4, pinned=True)
    assert plan(cluster.snapshot()) == Plan()


def test_the_urgent_and_the_early_come_first():
    cluster = Cluster(offer("small", (0, 4, 16), 0.4, limit=1))
    cluster.job("a", T4).job("b", T4, priority=1)
    assert [type(entry) for entry in plan(cluster.snapshot()).entries] == [Hold, Assign]


def test_what_was_measured_decides_between_families():
    cluster = Cluster(
        offer("slow", (0, 4, 16), 1.0, family="c"), offer("fast", (0, 4, 16), 1.5, family="d")
    ).job("a", task("w", c=(0, 4, 8), d=(0, 4, 8)))
    rates = StandaloneRates(
        (((Workload("w"), Family("c")), 10_000_000), ((Workload("w"), Family("d")), 20_000_000))
    )
    for learned, name in ((StandaloneRates(), "slow"), (rates, "fast")):
        plan, _ = POLICY.build(POLICY.config()).plan(
            replace(cluster.snapshot(), standalone=learned), None
        )
        assert [launch.offering.type.name for launch in plan.launches] == [name]
