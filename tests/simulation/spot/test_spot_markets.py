"""Simulated clusters on spot markets that run dry, come back and change their prices."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_lab.runs import named_policy
from eva_lab.simulator.results.lower_bound import reference_bound
from eva_lab.simulator.results.market_bound import market_bound
from eva_lab.simulator.results.metrics import usd
from eva_lab.simulator.run import Setup, Simulation
from eva_master.model.catalog import InstanceType, Offering, Purchase
from eva_master.model.fleet.market import Market, Span
from eva_master.model.resources import Resources
from eva_master.model.trace import SpotUse, Trace, TraceJob, TraceTask
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR, Family, Price, Workload

HOUR = MILLIS_PER_HOUR
SIZE = Resources(1, 4_000, 16_000)
GPU = Offering(InstanceType("p3.2xlarge", Family("p3"), SIZE), Price(3_060_000))


def jobs(count: int, hours: float, spot: SpotUse = SpotUse.ALLOWED) -> Trace:
    task = TraceTask(None, ((Family("p3"), SIZE),))
    return Trace(
        "jobs",
        tuple(
            TraceJob(f"j{n}", Workload("w"), 0, round(hours * HOUR), (task,), spot=spot)
            for n in range(count)
        ),
    )


def market(*spans: Span, hours: float = 1000) -> Market:
    return Market({("*", "a"): spans}, round(hours * HOUR))


def made(trace: Trace, of: Market, policy: str = "no_packing", **keys: object) -> Simulation:
    chosen, _ = named_policy(policy)
    setup = Setup(trace, of.offered((GPU,)), chosen, market=of, keep_record=True)
    return Simulation(replace(setup, **keys))  # type: ignore[arg-type]


def simulated(trace: Trace, of: Market, policy: str = "no_packing", **keys: object) -> Simulation:
    simulation = made(trace, of, policy, **keys)
    simulation.run()
    return simulation


def bought(simulation: Simulation) -> dict[str, list[Purchase]]:
    """What machines were bought as, by when they were asked for in hours."""
    found: dict[str, list[Purchase]] = {}
    for machine in simulation.cluster.cloud.bill().values():
        assert machine.up_ms is not None
        found.setdefault(f"{machine.up_ms / HOUR:.1f}", []).append(machine.offering.purchase)
    return found


def test_a_pool_of_four_with_seven_running_loses_three() -> None:
    of = market(Span(0, 7, 918_000), Span(HOUR, 4, 918_000))
    simulation = simulated(jobs(7, 3), of)
    assert simulation.market is not None
    assert simulation.market.interrupted == 3
    assert simulation.finished == 7
    spot = [
        it
        for it in simulation.cluster.cloud.bill().values()
        if it.offering.purchase is Purchase.SPOT
    ]
    lost = [it for it in spot if it.gone_ms is not None and it.gone_ms < 1.1 * HOUR]
    assert len(lost) == 3
    # They had two minutes' notice, and are given back once they are empty.
    assert all(it.gone_ms is not None and HOUR <= it.gone_ms <= HOUR + 120_000 for it in lost)


def test_a_dry_pool_refuses_and_jobs_fall_back() -> None:
    of = market(Span(0, 0, 918_000), Span(500 * HOUR, 9, 918_000))
    simulation = simulated(jobs(2, 1), of)
    assert simulation.market is not None
    assert simulation.market.refused > 0
    kinds = {it.offering.purchase for it in simulation.cluster.cloud.bill().values()}
    assert kinds == {Purchase.ON_DEMAND}


def test_what_a_price_that_changes_comes_to() -> None:
    """By hand: one instance, up from 0 to its end; a dollar for an hour, then two."""
    of = market(Span(0, 9, MILLION), Span(HOUR, 9, 2 * MILLION))
    simulation = simulated(jobs(1, 3, SpotUse.ONLY), of)
    (machine,) = simulation.cluster.cloud.bill().values()
    assert machine.up_ms is not None
    assert machine.gone_ms is not None
    first = (HOUR - machine.up_ms) / HOUR
    rest = (machine.gone_ms - HOUR) / HOUR
    outcome = simulation.outcome()
    assert outcome.cost_usd == pytest.approx(first * 1 + rest * 2, abs=1e-6)
    # The master's ledger says the same of it.
    assert usd(simulation.cluster.state.totals.charged) == pytest.approx(outcome.cost_usd, abs=1e-6)


def test_the_same_again_is_the_same() -> None:
    of = market(Span(0, 3, 918_000), Span(HOUR, 1, 918_000), Span(2 * HOUR, 3, 918_000), hours=4)
    first, second = (simulated(jobs(4, 5), of, "eva").outcome() for _ in range(2))
    assert first.row() == second.row()


def test_when_a_pool_comes_back_tasks_move_there() -> None:
    """Nothing else happens then: a market that offers more is an occasion of its own."""
    of = market(Span(0, 0, 918_000), Span(2 * HOUR, 9, 918_000))
    simulation = simulated(jobs(2, 10), of, "eva")
    kinds = bought(simulation)
    first, *later = sorted(kinds, key=float)
    assert set(kinds[first]) == {Purchase.ON_DEMAND}
    assert any(Purchase.SPOT in kinds[when] and float(when) >= 2 for when in later)
    assert simulation.outcome().cost_usd < 0.7 * 2 * 10 * 3.06


@pytest.mark.parametrize(
    ("use", "purchases"),
    [
        (SpotUse.NEVER, {Purchase.ON_DEMAND}),
        (SpotUse.ONLY, {Purchase.SPOT}),
        (SpotUse.ALLOWED, {Purchase.SPOT}),
    ],
)
def test_jobs_use_spot_instances_as_they_say(use: SpotUse, purchases: set[Purchase]) -> None:
    simulation = simulated(jobs(2, 1, use), market(Span(0, 9, 918_000)))
    bill = simulation.cluster.cloud.bill().values()
    assert {it.offering.purchase for it in bill} == purchases


def test_jobs_that_say_nothing_use_it_as_asked() -> None:
    silent = replace(jobs(1, 1), jobs=tuple(replace(it, spot=None) for it in jobs(2, 1).jobs))
    asked = silent.using_spot(SpotUse.ALLOWED)
    assert {it.spot for it in asked.jobs} == {SpotUse.ALLOWED}
    assert asked.using_spot(SpotUse.NEVER) == asked


def test_a_pool_that_stays_dry_is_tried_less_and_less_often() -> None:
    of = market(Span(0, 0, 918_000))
    simulation = simulated(jobs(1, 10), of, "eva")
    assert simulation.market is not None
    # After one, two, four and eight minutes, then every ten: 62 tries in ten hours.
    assert 55 <= simulation.market.refused <= 66


def test_the_bound_is_what_is_there_at_each_moment() -> None:
    # Two hours at 0.918 $, one on demand, and two at 1.5 $.
    of = market(Span(0, 1, 918_000), Span(2 * HOUR, 0, 918_000), Span(3 * HOUR, 9, 1_500_000))
    sold = of.offered((GPU,))
    assert usd(market_bound(jobs(1, 5), sold, of)) == pytest.approx(2 * 0.918 + 3.06 + 2 * 1.5)
    later = of.began_at(2 * HOUR)
    bound = usd(market_bound(jobs(2, 2), later.offered((GPU,)), later))
    assert bound == pytest.approx(2 * (3.06 + 1.5))
    dry = market(Span(0, 0, 918_000))
    assert market_bound(jobs(3, 2), sold, dry) == reference_bound(jobs(3, 2), (GPU,))


def test_nobody_goes_below_the_bound_who_runs_from_its_arrival_on() -> None:
    of = market(Span(0, 7, 918_000), Span(HOUR, 4, 918_000), Span(2 * HOUR, 9, 1_000_000))
    simulation = simulated(jobs(7, 3), of, "eva")
    bound = usd(market_bound(jobs(7, 3), of.offered((GPU,)), of))
    assert 0.6 * simulation.outcome().cost_usd < bound <= simulation.outcome().cost_usd
