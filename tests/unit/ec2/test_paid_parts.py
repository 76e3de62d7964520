"""Volumes and addresses are in the price of an instance, and lines of their own in the bill."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_lab.simulator.cluster.journal import MemoryJournal
from eva_master.adapters.bills import divided_bill
from eva_master.adapters.catalog.market import PurchaseTerms, TypeFilter, on_sale
from eva_master.adapters.ec2.memory import for_tasks
from eva_master.adapters.rpc.server.shown import costs
from eva_master.adapters.store.codec import INSTANCES
from eva_master.control.measure import ledger
from eva_master.control.planning.allowance import Allowance
from eva_master.control.rounds.rules.partition_limits import PartitionCap
from eva_master.control.state.store import State
from eva_master.model.accounting.splits import CostSplit
from eva_master.model.catalog import (
    Attached,
    InstanceType,
    Offering,
    Purchase,
    as_planned,
    on_demand_price,
    quoted_at,
    spot_family,
    with_disk,
)
from eva_master.model.fleet.partitions import Budget, Partition
from eva_master.model.planning.plan import Assign, NewInstance, Plan
from eva_master.model.records import Instance
from eva_master.model.resources import Resources
from eva_master.packing.plan_effect import PlanEffect
from eva_master.packing.valuation.job_valuation import JobValuation
from eva_master.testing.snapshots import Cluster
from eva_wire.values.ids import Family, InstanceId, Millis, Price, RunId
from eva_wire.values.states import InstanceState
from tests.fakes.jobs import job, task
from tests.fakes.models import model_of
from tests.fakes.rpc.server import add_instance

GIB = 1_024
PARTS = Attached(root_gib=30, gib_month=80_000, address=5_000)
C7I = Family("c7i")
LISTED = Offering(InstanceType("c7i.large", C7I, Resources(0, 2_000, 4_096)), Price(89_250))
SOLD = replace(for_tasks(LISTED, PARTS), minimum_ms=60_000)
SPOT = replace(
    quoted_at(SOLD, 30_000),
    type=replace(SOLD.type, family=spot_family(C7I)),
    purchase=Purchase.SPOT,
)
HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("gib", "hourly"), [(0, 0), (30, 3_288), (100, 10_959), (730, 80_000), (16_384, 1_795_507)]
)
def test_a_volume_costs_its_part_of_a_month(gib: int, hourly: int) -> None:
    assert replace(PARTS, root_gib=gib).volume == hourly


def test_the_price_has_all_parts_and_tasks_disk_adds_to_it_once() -> None:
    assert SOLD.price == 89_250 + 3_288 + 5_000
    large = with_disk(SOLD, 70 * GIB)
    assert large.price == 89_250 + 10_959 + 5_000
    assert with_disk(large, 70 * GIB) == large
    assert large.machine_price == SOLD.machine_price == 89_250
    assert as_planned(large).price == SOLD.price
    assert large.id == SOLD.id


def test_discounts_and_quotes_are_of_the_instance_alone() -> None:
    terms = PurchaseTerms(("a",), {"c7i": 200_000})
    (sold,) = on_sale((SOLD,), None, TypeFilter(), terms)
    assert sold.price == 71_400 + 8_288
    assert on_sale((SOLD,), None, TypeFilter(max_price=97_537), terms) == ()
    assert on_sale((SOLD,), None, TypeFilter(max_price=97_538), terms)


def test_on_demand_and_on_spot_the_same_things_are_attached() -> None:
    larger = with_disk(SPOT, 70 * GIB)
    assert on_demand_price((SOLD, SPOT), larger) == 89_250 + 10_959 + 5_000


def test_a_spot_instance_follows_quotes_beside_its_parts() -> None:
    state = State((SOLD, SPOT))
    name = add_instance(state, "i-1", SPOT)
    state.put_instance(state.instances[name].at_price(Price(50_000), Millis(950 + HOUR_MS)))
    changed = state.instances[name]
    assert changed.offering.price == 58_288
    two_hours = ledger.charge(changed, Millis(950), Millis(950 + 2 * HOUR_MS))
    assert two_hours == (38_288 + 58_288) * HOUR_MS
    assert changed.at_price(Price(50_000), Millis(9)) is changed
    state.set_prices({SPOT.id: Price(40_000)})
    assert [offering.price for offering in state.catalog] == [SOLD.price, 48_288]


def test_an_instance_on_record_without_parts_keeps_its_price() -> None:
    old = Instance(
        InstanceId("i-1"), LISTED, (("ready", 1),), Millis(0), up_ms=Millis(1), ready_ms=Millis(1)
    )
    document = INSTANCES.encode(old)
    assert "attached" not in document
    (again,) = INSTANCES.decode([document])
    assert again.offering.price == 89_250
    assert again.at_price(Price(70_000), Millis(5)).offering.price == 70_000
    new = replace(old, offering=with_disk(SOLD, 70 * GIB))
    assert INSTANCES.decode([INSTANCES.encode(new)]) == [new]


def ended(state: State, name: InstanceId, gone_ms: int) -> None:
    gone = replace(
        state.instances[name].to(InstanceState.TERMINATING, Millis(gone_ms)),
        gone_ms=Millis(gone_ms),
    )
    ledger.close_account(state, gone)


@given(
    disk=st.integers(0, 900),
    ends=st.integers(951, 200_000),
    looks=st.lists(st.integers(951, 300_000), max_size=4),
    free=st.booleans(),
)
def test_the_parts_add_up_to_the_bill_to_the_micro_dollar(
    disk: int, ends: int, looks: list[int], free: bool
) -> None:
    """Booked late or early, billed for a minute at least, with instances that have none."""
    state = State((SOLD, SPOT, LISTED))
    names = [
        add_instance(state, "i-1", with_disk(SOLD, disk * GIB)),
        add_instance(state, "i-2", SPOT),
        *([add_instance(state, "i-3", LISTED)] if free else []),
    ]
    for name in names:
        ledger.open_account(state, state.instances[name])
    for at in sorted(looks):
        check_parts(state, at)
        ledger.book(state, names[0], Millis(at))
    ended(state, names[0], ends)
    check_parts(state, 400_000)
    billed_ms = max(60_000, ends - 950)
    volumes = with_disk(SOLD, disk * GIB).attached.volume * billed_ms
    assert state.totals.parts["volumes"].charged == volumes
    assert state.totals.parts["addresses"].charged == 5_000 * billed_ms


def check_parts(state: State, now: int) -> None:
    model, at = model_of(state), Millis(now)
    bill, parts = costs.bill(model, at), divided_bill(model, CostSplit.of("part"), at)
    assert sum(share.charged for share in parts.shares) == bill.cost_micro_usd
    assert sum(share.idle for share in parts.shares) == bill.idle_micro_usd
    by_name = {share.name: share.charged for share in parts.shares}
    assert by_name.keys() <= {"instances", "volumes", "addresses"}
    assert bill.volumes_micro_usd == by_name.get("volumes", 0)
    assert bill.addresses_micro_usd == by_name.get("addresses", 0)


def test_parts_that_were_booked_stay_when_masters_die() -> None:
    state, journal = State((SOLD,)), MemoryJournal()
    name = add_instance(state, "i-1", SOLD)
    ledger.open_account(state, state.instances[name])
    ledger.book(state, name, Millis(950 + HOUR_MS))
    journal.commit(state.take_changes())
    again = State.restored((SOLD,), journal.load())
    assert again.totals.parts == state.totals.parts
    assert again.totals.parts["volumes"].charged == 3_288 * HOUR_MS
    check_parts(again, 950 + 2 * HOUR_MS)


def test_a_task_is_worth_an_instance_with_its_disk_and_everything_attached() -> None:
    """So the cost without packing has the same parts as the bill."""
    plain = task(1)
    (demand,) = {need for _, need in plain.demand}
    own = replace(plain, demand=((C7I, demand),))
    large = replace(plain, demand=((C7I, replace(demand, disk_mib=70 * GIB)),))
    spec = replace(job("j", 1), tasks=(own, large))
    prices = [each.price for each in JobValuation((SOLD,)).of(spec)]
    assert prices == [89_250 + 3_288 + 5_000, 89_250 + 10_959 + 5_000]


def test_a_budget_counts_the_disk_of_what_is_to_be_launched() -> None:
    need = Resources(0, 1_000, 1_024, 970 * GIB)
    spec = replace(task(1), demand=((C7I, need),))
    cluster = Cluster(SOLD).job("j", spec)
    plan = Plan((NewInstance(0, SOLD),), (Assign(RunId("j/0"), 0),))
    effect = PlanEffect(cluster.snapshot(), plan)
    # 1,000 GiB are $0.109589 an hour.
    price = 89_250 + 109_589 + 5_000
    assert effect.launched[0].price == price
    assert effect.launched[0].type.capacity == SOLD.type.capacity
    (unit,) = effect.units
    for per_hour, allowed in ((price, True), (price - 1, False)):
        partition = Partition("p", budget=Budget(per_hour=per_hour))
        cap = PartitionCap(effect, Allowance(partition, 0, 0, 0))
        assert bool(cap.refusal(unit)) is not allowed
