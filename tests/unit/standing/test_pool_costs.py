"""The bill by pool: what members have cost, how much of it was idle, and what that is on demand."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from eva_client.cli.views import bills, shapes
from eva_lab.simulator.simulated_cluster import SimulatedCluster
from eva_master.adapters.rpc.server.shown import costs
from eva_master.control.measure import ledger
from eva_master.control.state.store import State
from eva_master.model.accounting.pool_costs import PoolCost, read, written
from eva_master.model.catalog import Offering, Purchase, on_demand_price, spot_family
from eva_master.model.records import Drain, Instance, Job, TaskRun
from eva_wire._proto import api_pb2 as pb
from eva_wire.values.ids import Exact, Family, InstanceId, JobId, Millis, Price, RunId
from tests.fakes.jobs import CATALOG, LARGE, job, task
from tests.fakes.models import model_of
from tests.fakes.pools.policy import Config, PoolPolicy
from tests.unit.standing.test_pools import BOX, QUICK, TASK, _array

NAME = InstanceId("i1")
SPOT = replace(
    LARGE,
    price=Price(100_000),
    purchase=Purchase.SPOT,
    type=replace(LARGE.type, family=spot_family(LARGE.type.family)),
)


def state(offering: Offering = SPOT, on_demand: int | None = 370_000, pool: str = "p") -> State:
    """One instance in a pool, up since 1,000."""
    made = State(CATALOG)
    price = None if on_demand is None else Price(on_demand)
    history = (("ready", 1_000),)
    up = Instance(NAME, offering, history, Millis(0), up_ms=Millis(1_000), ready_ms=Millis(1_000))
    made.put_instance(replace(up, pool=pool, on_demand=price))
    ledger.open_account(made, made.instances[NAME])
    return made


def occupy(made: State) -> None:
    """A job runs on the instance from now on."""
    needs = (*task(2, "j").demand, (spot_family(LARGE.type.family), task(2, "j").demand[0][1]))
    spec = replace(job("j", 2), tasks=(replace(task(2, "j"), demand=needs),))
    made.put_job(Job(JobId("j"), spec, Millis(0), (("running", 1_000),)))
    running = (("running", 1_000),)
    made.put_run(TaskRun(RunId("j/0"), JobId("j"), 0, running, 1, NAME, NAME))


def cost(*amounts: int) -> PoolCost:
    return PoolCost(*map(Exact, amounts))


def test_members_cost_from_when_they_stand_in_a_pool_busy_or_not() -> None:
    made = state(pool="")
    ledger.book(made, NAME, Millis(3_000))
    assert made.totals.pools == {}, "it stands in none yet"
    made.put_instance(replace(made.instances[NAME], pool="p"))
    ledger.book(made, NAME, Millis(8_000))
    occupy(made)
    ledger.book(made, NAME, Millis(18_000))
    spent = 100_000 * 15_000
    assert made.totals.pools == {"p": cost(spent, 100_000 * 5_000, spent, 370_000 * 15_000)}
    # It is the pool's until it is gone, though it takes no new task.
    made.put_instance(replace(made.instances[NAME], drain=Drain("left the pool p")))
    ledger.book(made, NAME, Millis(20_000))
    assert made.totals.pools["p"].charged == 100_000 * 17_000
    bill = ledger.bill(made, Millis(20_000))
    assert bill.charged == 100_000 * 19_000
    assert bill.idle == 100_000 * 7_000
    assert sum(it.charged for it in bill.jobs.values()) + bill.idle == bill.charged


def test_what_readers_add_up_is_what_is_booked_later() -> None:
    made = state()
    ledger.book(made, NAME, Millis(4_000))
    told = model_of(made).cost(Millis(9_000)).pools
    ledger.book(made, NAME, Millis(9_000))
    assert told == made.totals.pools == model_of(made).cost(Millis(9_000)).pools
    assert told["p"].on_demand == 370_000 * 8_000


def test_a_price_that_changes_leaves_the_other_one_as_it_was() -> None:
    made = state()
    ledger.book(made, NAME, Millis(2_000))
    made.put_instance(made.instances[NAME].at_price(Price(200_000), Millis(2_000)))
    ledger.book(made, NAME, Millis(3_000))
    spent = 100_000 * 1_000 + 200_000 * 1_000
    assert made.totals.pools == {"p": cost(spent, spent, spent, 370_000 * 2_000)}


def test_what_no_price_is_known_of_is_compared_with_nothing() -> None:
    made = state(on_demand=None)
    ledger.book(made, NAME, Millis(2_000))
    spent = 100_000 * 1_000
    assert made.totals.pools == {"p": cost(spent, spent, 0, 0, spent)}


def test_members_on_demand_are_compared_with_nothing_and_owned_ones_cost_nothing() -> None:
    made = state(LARGE, on_demand=None)
    ledger.book(made, NAME, Millis(2_000))
    assert made.totals.pools == {"p": cost(370_000 * 1_000, 370_000 * 1_000)}
    owned = state(replace(LARGE, price=Price(0), purchase=Purchase.OWNED), on_demand=None)
    ledger.book(owned, NAME, Millis(2_000))
    assert owned.totals.pools == {}


@pytest.mark.parametrize("booked_ms", [2_000, 8_000, 9_500])
@pytest.mark.parametrize("minimum_ms", [0, 60_000])
@pytest.mark.parametrize("busy", [False, True])
def test_the_last_is_settled_with_the_pool(booked_ms: int, minimum_ms: int, busy: bool) -> None:
    made = state(replace(SPOT, minimum_ms=minimum_ms))
    if busy:
        occupy(made)
    ledger.book(made, NAME, Millis(booked_ms))
    made.put_instance(replace(made.instances[NAME], gone_ms=Millis(8_000)))
    ledger.close_account(made, made.instances[NAME])
    billed = max(7_000, minimum_ms)
    pool = made.totals.pools["p"]
    assert pool.charged == pool.spot == made.instance_accounts[NAME].charged == 100_000 * billed
    assert pool.on_demand == 370_000 * billed
    assert 0 <= pool.idle <= pool.charged


def test_what_was_booked_past_the_end_is_taken_from_the_last_pool_first() -> None:
    made = state(pool="z")
    ledger.book(made, NAME, Millis(5_000))
    made.put_instance(replace(made.instances[NAME], pool="a"))
    ledger.book(made, NAME, Millis(9_000))
    made.put_instance(replace(made.instances[NAME], gone_ms=Millis(4_000)))
    ledger.close_account(made, made.instances[NAME])
    pools = made.totals.pools
    assert pools["a"] == PoolCost()
    assert (pools["z"].charged, pools["z"].on_demand) == (100_000 * 3_000, 370_000 * 3_000)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["", "p", "q"]),
            st.booleans(),
            st.integers(1, 10**6),
            st.integers(0, 10**7),
        ),
        max_size=8,
    ),
    st.sampled_from([None, 370_000]),
)
def test_rows_are_what_happened_step_by_step(
    steps: list[tuple[str, bool, int, int]], on_demand: int | None
) -> None:
    made, now = state(on_demand=on_demand), Millis(1_000)
    expected: dict[str, list[int]] = {}
    for pool, busy, price, elapsed in steps:
        held = any(made.occupants(NAME))
        if busy and not held:
            occupy(made)
        instance = made.instances[NAME].at_price(Price(price), now)
        made.put_instance(replace(instance, pool=pool))
        now = Millis(now + elapsed)
        ledger.book(made, NAME, now)
        sums = expected.setdefault(pool, [0, 0, 0, 0, 0])
        idle = not (busy or held)
        known = on_demand is not None
        for place, ms_price in enumerate(
            (price, price * idle, price * known, on_demand or 0, price * (not known))
        ):
            sums[place] += ms_price * elapsed
    in_pools = {pool: cost(*it) for pool, it in expected.items() if pool and it[0]}
    assert made.totals.pools == in_pools
    bill = ledger.bill(made, now)
    assert sum(it.charged for it in bill.jobs.values()) + bill.idle == bill.charged
    assert read(written(made.totals.pools)) == made.totals.pools


def test_the_price_on_demand_is_that_of_the_zone_or_else_of_the_cheapest_one() -> None:
    here, there = replace(LARGE, zone="a", price=Price(5)), replace(LARGE, zone="b", price=Price(3))
    dear = replace(LARGE, zone="c", price=Price(9))
    spot = replace(SPOT, zone="a")
    assert on_demand_price((there, here, dear, spot), spot) == 5
    assert on_demand_price((dear, there, spot), spot) == 3
    other = replace(there, type=replace(LARGE.type, name="other"))
    assert on_demand_price((other, spot), spot) is None
    assert on_demand_price((here, there), here) is None, "it is on demand itself"


def test_a_restart_changes_no_row_nor_does_another_catalog() -> None:
    spot = replace(
        BOX,
        price=Price(250_000),
        purchase=Purchase.SPOT,
        type=replace(BOX.type, family=spot_family(BOX.type.family)),
    )
    world = SimulatedCluster((spot, BOX), PoolPolicy(Config(size=2, keeps=True)), settings=QUICK)
    both = replace(TASK, demand=(*TASK.demand, (spot_family(Family("c")), TASK.demand[0][1])))
    world.submit(replace(_array("a", 6), tasks=(both,) * 6))
    world.run(lambda: False, limit_ms=600_000)
    assert world.state.totals.pools["small"].charged, "some of it is booked"
    assert {it.on_demand for it in world.state.instances.values()} == {BOX.price}
    before = model_of(world.state).cost(world.timeline.now())
    world.restart()
    after = model_of(world.state).cost(world.timeline.now())
    assert after.pools == before.pools
    (pool,) = after.pools.values()
    assert pool.on_demand == 4 * pool.spot == 4 * after.charged > 0
    world.run(lambda: False, limit_ms=300_000)
    later = model_of(world.state).cost(world.timeline.now()).pools["small"]
    assert later.on_demand == 4 * later.spot > pool.on_demand


def test_what_is_forgotten_stays_in_the_rows() -> None:
    made = state()
    gone = replace(made.instances[NAME], gone_ms=Millis(8_000), history=(("gone", 8_000),))
    made.put_instance(gone)
    ledger.close_account(made, gone)
    before = made.totals.pools
    made.forget(Millis(10**9), 9)
    assert NAME not in made.instances
    assert made.totals.pools == before != {}


def shown(message: pb.Bill) -> list[list[str]]:
    screen = Console(file=io.StringIO(), width=200)
    screen.print(bills.bill(message))
    assert isinstance(screen.file, io.StringIO)
    return [line.split() for line in screen.file.getvalue().splitlines()]


def test_the_bill_has_a_row_for_each_pool_and_one_for_the_rest() -> None:
    message = pb.Bill(
        cost_micro_usd=10_000_000,
        idle_micro_usd=3_000_000,
        pools=[
            pb.PoolCost(pool="steady", cost_micro_usd=4_000_000, idle_micro_usd=1_500_000),
            pb.PoolCost(
                pool="transient",
                cost_micro_usd=2_500_000,
                idle_micro_usd=500_000,
                spot_micro_usd=2_000_000,
                on_demand_micro_usd=8_000_000,
                unpriced_micro_usd=500_000,
            ),
            pb.PoolCost(pool="new", cost_micro_usd=1_000_000, unpriced_micro_usd=1_000_000),
        ],
    )
    rows = shown(message)
    assert ["POOL", "COST", "IDLE", "SPOT", "ON", "DEMAND", "SAVED"] in rows
    assert ["steady", "$4.00", "$1.50", "-", "-", "-"] in rows
    assert ["transient", "$2.50", "$0.5000", "$2.50", "$8.00", "$6.00", "(75%)"] in rows
    assert ["new", "$1.00", "$0.00", "$1.00", "unknown", "unknown"] in rows
    assert ["(none)", "$2.50", "$1.00", "-", "-", "-"] in rows
    assert [row[:3] for row in rows if row[:1] in (["transient:"], ["new:"])] == [
        ["transient:", "$0.5000", "is"],
        ["new:", "$1.00", "is"],
    ]
    assert "($3.00 idle, $2.00 of it in pools)" in " ".join(rows[-1])
    (_, row, _) = shapes.bill_sums(message)["pools"]
    assert (row["cost_usd"], row["idle_usd"], row["spot_usd"]) == (2.5, 0.5, 2.0)
    assert (row["on_demand_usd"], row["saved_usd"], row["spot_unpriced_usd"]) == (8.0, 6.0, 0.5)


def test_without_pools_the_bill_says_nothing_of_them() -> None:
    rows = shown(pb.Bill(cost_micro_usd=10_000_000, idle_micro_usd=3_000_000))
    assert not any("POOL" in row or "pools)" in " ".join(row) for row in rows)


def test_each_sum_of_a_row_is_rounded_once() -> None:
    made = state()
    ledger.book(made, NAME, Millis(1_000 + 1_234_567))
    (row,) = costs.bill(model_of(made), Millis(1_000 + 1_234_567)).pools
    assert (row.pool, row.cost_micro_usd) == ("p", round(100_000 * 1_234_567 / 3_600_000))
    assert row.on_demand_micro_usd == round(370_000 * 1_234_567 / 3_600_000)
