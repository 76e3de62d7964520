"""The paper's rule of size, against its loop; and what it does to the pools."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eva_master.model.catalog import Offering, Purchase, spot_family
from eva_master.model.planning.plan import Plan
from eva_master.model.planning.snapshot import (
    BackPolicyRoom,
    InstanceView,
    SharedInstance,
    SharedRoom,
)
from eva_master.model.resources import Resources
from eva_policies.cloudcoaster import POLICY
from eva_policies.cloudcoaster.config import Config
from eva_policies.cloudcoaster.sizing import published
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import MILLION, Family, InstanceId
from tests.fakes.snapshots import Cluster, offer, task

SPOT = spot_family(Family("any"))
EITHER = task("w", **{"any": (0, 1, 1), SPOT: (0, 1, 1)})
SERVER = offer("s.1", (0, 1, 1), 1.0)
CHEAP = replace(
    SERVER,
    type=replace(SERVER.type, family=SPOT),
    purchase=Purchase.SPOT,
    price=round(MILLION / 3),
)
NODE = offer("n.4", (0, 4, 4), 4.0)


def by_the_loop(n_long: int, n_static: int, threshold: Fraction, most: int) -> int:
    """Section 3.2: one server more or less until the ratio crosses the threshold."""
    there = 0
    while there < most and n_long > threshold * (n_static + there):
        there += 1
    return there


@settings(deadline=None, derandomize=True, max_examples=300)
@given(
    n_long=st.integers(0, 400),
    n_static=st.integers(1, 400),
    threshold_ppm=st.integers(500_000, MILLION),
    most=st.integers(0, 60),
)
def test_the_closed_form_is_what_the_loop_comes_to(n_long, n_static, threshold_ppm, most):
    found = published(n_long, n_static, threshold_ppm, most)
    assert found == by_the_loop(n_long, n_static, Fraction(threshold_ppm, MILLION), most)


def test_the_paper_s_cluster():
    # 4,000 servers, 40 of them short and on demand, 120 transient ones at most.
    assert published(3762, 3960, 950_000, 120) == 0
    assert published(3763, 3960, 950_000, 120) == 2
    assert published(3920, 3960, 950_000, 120) == 120


def beside(long_slots: int, nodes: int = 4) -> BackPolicyRoom:
    """Nodes of four slots each, so many of which hold long tasks."""
    rooms = []
    for number in range(nodes):
        held = min(4, max(0, long_slots - 4 * number))
        own = Resources(0, 1000 * held, 1024 * held)
        free = NODE.type.capacity - own
        rooms.append(SharedInstance(InstanceId(f"n{number}"), SharedRoom(NODE, free, own)))
    return BackPolicyRoom(tuple(rooms))


def planned(long_slots: int, members: tuple[InstanceView, ...] = (), **options: object) -> Plan:
    cluster = Cluster(SERVER, CHEAP).job("a", *[EITHER] * 50, kind=JobKind.ARRAY)
    snapshot = replace(cluster.snapshot(), instances=members, beside=beside(long_slots))
    config = {
        "slots": 8,
        "resize": "published",
        "threshold_ppm": 800_000,
        "largest_share_ppm": MILLION,
        **options,
    }
    plan, _ = POLICY.build(Config(**config)).plan(snapshot, None)  # type: ignore[arg-type]
    return plan


def sizes(plan: Plan) -> dict[str, int]:
    return {pool.name: len(pool.members) for pool in plan.pools if not pool.shared}


def test_transient_members_come_and_go_with_the_long_load():
    # 16 shared slots and 4 on demand: 15 long tasks are 75 % of them, 16 are 80 %.
    plan = planned(16)
    assert sizes(plan) == {"steady": 4}
    # At a threshold of 76 % two more slots bring 16 of 20 below it: 16 of 22 are 72.7 %.
    plan = planned(16, threshold_ppm=760_000)
    assert sizes(plan) == {"steady": 4, "transient": 2}
    assert "long tasks hold 16 of 22 slots, 72.7 %" in plan.pools[1].reason
    # At 60 % it would be 7, at 40 % 20: the money is for four at full price, 12 at a third.
    assert sizes(planned(16, threshold_ppm=600_000))["transient"] == 7
    assert sizes(planned(16, threshold_ppm=400_000))["transient"] == 12
    spot = tuple(
        InstanceView(InstanceId(f"t{n}"), CHEAP, (), ready=True, pool="transient") for n in range(7)
    )
    plan = planned(16, spot, threshold_ppm=760_000)
    assert sizes(plan)["transient"] == 2, "five leave"
    assert sizes(planned(15, spot, threshold_ppm=760_000)) == {"steady": 4}


def test_those_that_leave_count_until_they_are_gone():
    leaving = tuple(InstanceView(InstanceId(f"d{n}"), CHEAP, (), ready=True) for n in range(9))
    cluster = Cluster(SERVER, CHEAP).job("a", *[EITHER] * 50, kind=JobKind.ARRAY)
    snapshot = replace(cluster.snapshot(), draining=leaving, beside=beside(16))
    config = Config(slots=8, resize="published", threshold_ppm=400_000, largest_share_ppm=MILLION)
    plan, _ = POLICY.build(config).plan(snapshot, None)
    assert sizes(plan)["transient"] == 3, "twelve are paid for"


def full_price(offering: Offering) -> bool:
    return offering.purchase is Purchase.ON_DEMAND


def test_what_waits_buys_no_spot():
    plan = planned(0)
    assert all(full_price(launch.offering) for launch in plan.launches)
    assert sizes(plan) == {"steady": 4}


def test_a_size_by_need_wants_the_shared_room():
    with pytest.raises(ValueError, match="have resize: published"):
        Config(short_first=False)


def test_what_was_bought_for_a_task_that_fits_no_other_member_stays_for_it():
    large = task("w", **{"any": (0, 4, 4), SPOT: (0, 4, 4)})
    big = replace(CHEAP, type=replace(NODE.type, family=SPOT), price=round(4 * MILLION / 3))
    cluster = Cluster(SERVER, CHEAP, big).job("a", large, kind=JobKind.ARRAY)
    config = Config(slots=8, resize="published", largest_share_ppm=MILLION)
    policy, snapshot = POLICY.build(config), cluster.snapshot()
    plan, memory = policy.plan(snapshot, None)
    (launch,) = plan.launches
    assert launch.offering == big
    boots = InstanceView(InstanceId("b"), big, (), ready=False, pool="transient")
    # No long task is there, so the rule wants no transient server. The task would wait for ever.
    again, _ = policy.plan(replace(snapshot, instances=(boots,)), memory)
    assert again.launches == ()
    assert [pool.members for pool in again.pools] == [("b",)]
    assert again.lines[0].jobs == ("a",)


def test_short_tasks_that_have_turned_out_to_be_long_count_as_long():
    def held(*long: bool) -> int:
        cluster = Cluster(SERVER, CHEAP)
        for number in range(2):
            cluster.instance(f"s{number}", "s.1")
        cluster.job("a", *[EITHER] * 2, kind=JobKind.ARRAY, on=["s0", "s1"])
        snapshot = cluster.snapshot()
        runs = (replace(run, long=it) for run, it in zip(snapshot.runs, long, strict=True))
        stand = tuple(replace(view, pool="steady") for view in snapshot.instances)
        snapshot = replace(snapshot, runs=tuple(runs), instances=stand, beside=beside(16))
        plan, _ = POLICY.build(Config(slots=8, resize="published", threshold_ppm=600_000)).plan(
            snapshot, None
        )
        told = next(pool.reason for pool in plan.pools if pool.name == "transient")
        return int(told.partition("long tasks hold ")[2].partition(" of ")[0])

    assert (held(False, False), held(True, False), held(True, True)) == (16, 17, 18)
