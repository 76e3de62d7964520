"""Simulated jobs with deadlines on spot markets that run dry."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_lab.simulator.results.metrics import DeadlineFigures
from eva_lab.simulator.run import Simulation
from eva_master.model.catalog import Purchase
from eva_master.model.fleet.market import Market, Span
from eva_master.model.planning.spot_choice import SpotChoice
from eva_master.model.trace import Trace
from eva_wire.values.errors import InvalidTrace
from tests.simulation.spot.test_spot_markets import HOUR, jobs, made, market, simulated

PRICE = 918_000
MINUTE = HOUR // 60


def within(trace: Trace, hours: float) -> Trace:
    """The same jobs with deadlines."""
    return replace(
        trace, jobs=tuple(replace(it, within_ms=round(hours * HOUR)) for it in trace.jobs)
    )


def up(*hours: tuple[float, float], count: int = 9) -> Market:
    """A pool that is there from and until some hours."""
    spans = [] if hours[0][0] == 0 else [Span(0, 0, PRICE)]
    for start, end in hours:
        spans += [Span(round(start * HOUR), count, PRICE), Span(round(end * HOUR), 0, PRICE)]
    return market(*spans)


def took(simulation: Simulation) -> list[float]:
    """How long each job took, in hours."""
    return [(it.finished_ms - it.submitted_ms) / HOUR for it in simulation.outcome().record.jobs]


def hours_of(simulation: Simulation) -> dict[Purchase, float]:
    """How long instances were there."""
    found = dict.fromkeys(Purchase, 0.0)
    for it in simulation.cluster.cloud.bill().values():
        assert it.up_ms is not None
        assert it.gone_ms is not None
        found[it.offering.purchase] += (it.gone_ms - it.up_ms) / HOUR
    return found


def test_a_job_with_time_to_lose_waits_for_a_pool_and_one_without_does_not() -> None:
    of = up((2, 30))
    patient = simulated(within(jobs(1, 4), 12), of)
    assert hours_of(patient)[Purchase.ON_DEMAND] == 0
    assert 6 < took(patient)[0] < 7
    hurried = simulated(within(jobs(1, 4), 4.5), of)
    assert hours_of(hurried)[Purchase.ON_DEMAND] > 4
    assert took(hurried)[0] < 4.5


def test_a_pool_that_never_comes_back_costs_time_and_no_deadline() -> None:
    of = up((0, 3))
    simulation = simulated(within(jobs(3, 6), 10), of)
    hours = hours_of(simulation)
    assert hours[Purchase.SPOT] == pytest.approx(9, rel=0.05)
    assert hours[Purchase.ON_DEMAND] == pytest.approx(9, rel=0.1)
    assert 9 < max(took(simulation)) < 10, "it was waited for until that was no longer safe"


def test_who_has_no_time_to_lose_stays_on_demand_when_a_pool_comes_back() -> None:
    simulation = simulated(within(jobs(1, 6), 6.3), up((1, 30)))
    assert hours_of(simulation)[Purchase.SPOT] == 0
    assert took(simulation)[0] < 6.3


@pytest.mark.parametrize("rule", list(SpotChoice))
def test_no_rule_misses_a_deadline_on_a_market_that_flickers(rule: SpotChoice) -> None:
    of = up(*((n * 0.5, n * 0.5 + 0.2) for n in range(1, 60)))
    trace = Trace(
        "jobs",
        tuple(
            replace(jobs(1, 5).jobs[0], id=f"j{n}", within_ms=round((5.25 + n / 4) * HOUR))
            for n in range(12)
        ),
    )
    simulation = simulated(trace, of, spot_choice=rule)
    due = {it.id: it.within_ms for it in trace.jobs}
    for it in simulation.outcome().record.jobs:
        limit = due[it.name]
        assert limit is not None
        assert it.finished_ms - it.submitted_ms <= limit, it.name
    if rule is SpotChoice.ON_DEMAND:
        assert hours_of(simulation)[Purchase.SPOT] == 0


def test_waiting_saves_what_it_is_for() -> None:
    of = up((3, 40))
    patient = simulated(within(jobs(4, 6), 20), of)
    at_once = simulated(jobs(4, 6), of)
    assert patient.outcome().cost_usd < 0.7 * at_once.outcome().cost_usd


def test_what_was_missed_is_counted() -> None:
    # A start takes a second, and there is a third of one for it.
    trace = within(jobs(3, 1), 1.0001)
    late = simulated(trace, up((0, 30)), spot_choice=SpotChoice.ON_DEMAND).outcome().deadlines
    assert late is not None
    assert (late.jobs, late.missed) == (3, 3)
    assert late.late_max_h * 3_600 == pytest.approx(0.64)
    kept = simulated(within(jobs(3, 1), 1.5), up((0, 30))).outcome().deadlines
    assert kept is not None
    assert (kept.jobs, kept.missed, kept.late_max_h) == (3, 0, 0)
    assert simulated(jobs(1, 1), up((0, 30))).outcome().deadlines is None


def test_deadlines_that_cannot_be_kept_are_told_before_they_are_refused() -> None:
    six = jobs(3, 6)
    hours = (5.9, 7.0, 5.0)
    due = tuple(
        replace(it, within_ms=round(each * HOUR)) for it, each in zip(six.jobs, hours, strict=True)
    )
    hopeless = {six.jobs[0].id, six.jobs[2].id}
    simulation = made(replace(six, jobs=due), up((0, 30)))
    assert simulation.infeasible() == hopeless
    with pytest.raises(InvalidTrace, match=f"job {six.jobs[0].id} is refused .* on demand"):
        simulation.run()
    kept = tuple(replace(it, within_ms=None) if it.id in hopeless else it for it in due)
    again = made(replace(six, jobs=kept), up((0, 30)))
    assert not again.infeasible()
    again.run()
    assert again.outcome().deadlines == DeadlineFigures(jobs=1, missed=0, late_max_h=0)
