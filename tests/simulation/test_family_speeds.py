"""Simulated tasks that run faster on some families than on others."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_lab.runs import named_policy
from eva_lab.simulator.results.lower_bound import reference_bound
from eva_lab.simulator.run import Setup, Simulation, simulate
from eva_lab.simulator.scenario.journal_replay import latest, past
from eva_lab.traces.recipes import ProductionRecipe
from eva_master.control.measure import ledger
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.resources import Resources
from eva_master.model.trace import Trace, TraceJob, TraceTask
from eva_wire.values.ids import MILLION, Family, Price, Workload
from tests.simulation.test_accounting import setup

HOUR_MS = 3_600_000
FAST, SLOW = Family("fast"), Family("slow")
POLICIES = ("eva", "eva_published", "no_packing", "stratus", "synergy", "owl")


def offering(family: Family, cpus: int, usd: float) -> Offering:
    kind = InstanceType(
        f"{family}.{cpus}", family, Resources(0, cpus * 1_000, cpus * 2_048), 20_000, 100_000
    )
    return Offering(kind, Price(round(usd * MILLION)))


CATALOG = (
    offering(FAST, 4, 2.0),
    offering(FAST, 8, 4.0),
    offering(SLOW, 4, 0.4),
    offering(SLOW, 8, 0.8),
)


def job(name: str, at_s: int, hours: float, slow: float, tasks: int = 1) -> TraceJob:
    """A job that takes so long on the fast family, and runs at `slow` of its speed on the other."""
    speeds = ((SLOW, round(slow * MILLION)),)
    task = TraceTask(Resources(0, 4_000, 4_096), speed_by_family=speeds)
    duration = round(hours * HOUR_MS)
    return TraceJob(name, Workload(name), at_s * 1_000, duration, (task,) * tasks)


def of(*jobs: TraceJob, policy: str = "no_packing", catalog=CATALOG) -> Setup:
    given = setup(*jobs, policy=named_policy(policy)[0])
    return replace(given, catalog=catalog, trace=Trace("t", jobs))


def test_a_task_on_a_slow_family_takes_that_much_longer() -> None:
    slow_only = CATALOG[2:]
    (figures,) = simulate(of(job("a", 0, 1.0, slow=0.25), catalog=slow_only)).record.jobs
    assert figures.moving_ms == 4 * HOUR_MS
    assert figures.alone_ms == 4 * HOUR_MS, "that is how long it takes where its price comes from"


def test_a_gang_runs_at_the_pace_of_its_slowest_family() -> None:
    mixed = replace(CATALOG[0], limit=1), CATALOG[2]
    (figures,) = simulate(of(job("a", 0, 1.0, slow=0.5, tasks=2), catalog=mixed)).record.jobs
    assert figures.moving_ms == 2 * HOUR_MS


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_lets_a_divided_gang_use_the_only_slow_server(policy: str) -> None:
    """At a third of the speed and a fifth of the price it is the better one, and there is one."""
    catalog = CATALOG[0], replace(CATALOG[2], limit=1)
    divided = replace(job("a", 0, 1.0, slow=1 / 3, tasks=2), split_batch=True)
    it = simulate(of(divided, policy=policy, catalog=catalog))
    assert {bill.type.split(".")[0] for bill in it.record.instances} == {"fast", "slow"}
    (figures,) = it.record.jobs
    assert figures.moving_ms == pytest.approx(HOUR_MS / (2 / 3), rel=1e-3)


@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_takes_a_slow_family_for_a_bargain(policy: str) -> None:
    # On the slow family an hour's work costs 0.4 * 20 = 8 $ in place of 2 $.
    jobs = [job(str(n), 600 * n, 2.0, slow=0.05) for n in range(6)]
    it = simulate(of(*jobs, policy=policy))
    assert {bill.type.split(".")[0] for bill in it.record.instances} == {"fast"}
    assert it.cost_usd < 6 * 2 * 2.0 * 1.15


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_takes_a_slow_family_that_is_one(policy: str) -> None:
    # An hour's work costs 0.4 / 0.5 = 0.8 $ there.
    jobs = [job(str(n), 600 * n, 2.0, slow=0.5) for n in range(6)]
    it = simulate(of(*jobs, policy=policy))
    assert {bill.type.split(".")[0] for bill in it.record.instances} == {"slow"}


def test_the_ledger_compares_with_the_cheapest_iterations() -> None:
    simulation = Simulation(of(job("a", 0, 1.0, slow=0.25)))
    simulation.run()
    state = simulation.cluster.state
    (account,) = ledger.bill(state, latest(state)).jobs.values()
    boot = 100_000 * 400_000
    # Four hours at 0.4 $ are cheaper than one at 2 $.
    assert account.alone - boot == 4 * HOUR_MS * 400_000


@pytest.mark.parametrize("policy", ["no_packing", "stratus"])
def test_the_same_happens_again_from_the_journal(policy: str) -> None:
    jobs = [job(str(n), 900 * n, 1.0, slow) for n, slow in enumerate((0.1, 0.5, 0.19, 1.0, 0.3))]
    first = Simulation(of(*jobs, policy=policy))
    record = first.run().record
    state = first.cluster.state
    found = past(state, record.rounds, ledger.bill(state, latest(state)).charged)
    given = replace(of(*jobs, policy=policy), past=found, trace=found.trace(), truth=found.truth)
    again = simulate(given)
    assert [(it.type, it.gone_ms - it.up_ms) for it in again.record.instances] == [
        (it.type, it.gone_ms - it.up_ms) for it in record.instances
    ]
    assert {it.type.split(".")[0] for it in record.instances} == {"fast", "slow"}


def test_no_scheduler_pays_less_than_the_cheapest_iterations() -> None:
    """One job at a time on instances that it fills: the bound is what its iterations cost."""
    catalog = CATALOG[0], CATALOG[2]
    for slow, usd in ((0.05, 2.0), (0.5, 0.8), (2.0, 0.2)):
        trace = Trace("t", (job("a", 0, 1.0, slow),))
        bound = reference_bound(trace, catalog) / MILLION / HOUR_MS
        assert bound == pytest.approx(usd, rel=1e-5)


def test_recipes_draw_speeds_and_leave_all_else_as_it_was() -> None:
    plain = ProductionRecipe(kind="production", jobs=40).trace(3, CATALOG)
    mixed = ProductionRecipe(kind="production", jobs=40, family_speeds=0.5).trace(3, CATALOG)
    assert [(it.arrival_ms, it.duration_ms, it.workload) for it in mixed.jobs] == [
        (it.arrival_ms, it.duration_ms, it.workload) for it in plain.jobs
    ]
    differing = [it for it in mixed.jobs if it.tasks[0].speed_by_family]
    assert 0 < len(differing) < len(mixed.jobs)
    by_workload = {it.workload: it.tasks[0].speed_by_family for it in mixed.jobs}
    assert all(it.tasks[0].speed_by_family == by_workload[it.workload] for it in mixed.jobs)
