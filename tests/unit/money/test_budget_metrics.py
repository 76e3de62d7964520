"""Metrics of caps and budgets, which rules for alerts read."""

from __future__ import annotations

from dataclasses import replace

from eva_master.adapters.http.budgets import budget_figures, budget_metrics
from eva_master.control.measure import ledger
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.fleet.partitions import Budget, Partitions
from eva_master.model.planning.suspension import Suspender, Suspension
from eva_master.model.tenants.quotas import Tenancy
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.states import RunState
from tests.fakes.models import model_of
from tests.fakes.rpc.server import CATALOG, add_instance, add_job, spec

HOUR_MS = 3_600_000


def test_budgets_and_capped_jobs_are_gauges_without_names_of_users() -> None:
    state = State(CATALOG)
    place = add_instance(state)
    state.put_instance(replace(state.instances[place], partition="main"))
    job = add_job(state, replace(spec("a"), tenant="vision"))
    run = next(state.members(job)).to(RunState.STARTING, Millis(1000))
    run = run.to(RunState.RUNNING, Millis(1000))
    state.put_run(replace(run, attempt=1, instance=place, target=place))
    ledger.open_account(state, state.instances[place])
    state.put_job(replace(state.jobs[job], cap_told=True))
    for name, by in (("b", Suspender.COST), ("c", Suspender.MONTH), ("d", Suspender.USER)):
        rests = state.jobs[add_job(state, spec(name))]
        state.put_job(replace(rests, cap_told=True, suspension=Suspension(by, Millis(1))))
    main = replace(Partitions().all[0], name="main", budget=Budget(per_month=2_000_000))
    settings = Settings(
        tenancy=Tenancy(budgets={"vision": 1_000_000}), partitions=Partitions((main,))
    )
    figures = budget_figures(model_of(state, settings), Millis(950 + HOUR_MS))
    values = {
        (metric.name, *sample.labels.values()): round(sample.value, 6)
        for metric in budget_metrics(figures)
        for sample in metric.samples
    }
    # A c7i.large costs $0.08925 an hour.
    assert values == {
        ("eva_budget_usd", "partition", "main"): 2.0,
        ("eva_budget_usd", "tenant", "vision"): 1.0,
        ("eva_budget_spent_usd", "partition", "main"): 0.08925,
        ("eva_budget_spent_usd", "tenant", "vision"): 0.08925,
        ("eva_capped_jobs", "job"): 1,
        ("eva_capped_jobs", "owner"): 1,
        ("eva_nearly_capped_jobs",): 2,
    }
    assert state.jobs[JobId("a-1")].suspension is None
