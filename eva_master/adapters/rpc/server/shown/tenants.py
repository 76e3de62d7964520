"""Tenants as messages, with notes on their budgets, and metrics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from eva_client.cli.views.words import money
from eva_master.adapters.bills import divided_bill
from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.adapters.rpc.server.shown.costs import bill, budget_notes
from eva_master.adapters.rpc.server.shown.lending import payment_metrics, payments_of
from eva_master.adapters.rpc.server.shown.part import Part
from eva_master.adapters.rpc.server.shown.states import LASTING_STATES, jobs_by_state
from eva_master.model.accounting.splits import NO_SHARE, CostSplit, SplitKind
from eva_master.model.accounting.tenants import TenantRules
from eva_master.model.accounting.totals import TenantTotals
from eva_master.model.tenants.quotas import TenantLimits
from eva_master.ports.reading import ReadModel
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR, Millis


def response(model: ReadModel, rules: TenantRules, now: Millis) -> pb.TenantsResponse:
    """Jobs and costs of each tenant as of `now`.

    Their micro-dollars and the bill's idle ones add up to those of the bill.
    """
    sums, totals = bill(model, now), model.of_tenants(now)
    listed = [*rules.names, *sorted(totals.keys() - set(rules.names))]
    shares = divided_bill(model, CostSplit(SplitKind.TENANT), now, most=len(listed)).by_name
    messages, limits = [], model.tenant_limits(now)
    for name in listed:
        of, share = totals.get(name, TenantTotals()), shares.get(name, NO_SHARE)
        messages.append(
            pb.Tenant(
                name=name,
                owners=rules.owners.get(name, ()),
                jobs_by_state=jobs_by_state(of.jobs, model.totals.suspended.get(name, 0)),
                cost_micro_usd=share.charged,
                no_packing_micro_usd=share.alone,
                former=name not in rules.names,
                **_limits_of(limits.get(name)),
            )
        )
        messages[-1].MergeFrom(payments_of(of))
    return pb.TenantsResponse(tenants=messages, bill=sums)


def _limits_of(limits: TenantLimits | None) -> dict[str, Any]:
    """A tenant's limits and use, as fields; empty without limits."""
    if limits is None:
        return {}
    fields: dict[str, Any] = {"use": dict(limits.use)}
    if limits.quota is not None:
        fields["quota"] = pb.Quota(stated=dict(limits.quota), now=dict(limits.quota_now))
    if limits.budget is not None:
        fields.update(budget_micro_usd=limits.budget, month_micro_usd=limits.month)
    return fields


def _notes(model: ReadModel, now: Millis) -> Iterator[pb.Note]:
    """Budgets of tenants that are nearly spent."""
    for name, of in model.tenant_limits(now).items():
        if of.budget is not None:
            amounts = of.month, of.budget
            yield from budget_notes(f"tenant {name}", amounts, "budget of this month", money)


def _metrics(model: ReadModel, now: Millis) -> Iterator[Metric]:
    """Figures by tenant: their names are the settings', not the users'."""
    jobs = GaugeMetricFamily(
        "eva_tenant_jobs", "Jobs of a tenant that have not ended.", labels=["tenant", "state"]
    )
    cost = CounterMetricFamily(
        "eva_tenant_cost_usd", "Charged for a tenant's jobs, without idle time.", labels=["tenant"]
    )
    by_name, suspended = model.of_tenants(now), model.totals.suspended
    for tenant, sums in sorted(by_name.items()):
        counts = jobs_by_state(sums.jobs, suspended.get(tenant, 0))
        for state in LASTING_STATES:
            jobs.add_metric([tenant, state], counts.get(state, 0))
        cost.add_metric([tenant], sums.charged / MILLIS_PER_HOUR / MILLION)
    yield jobs
    yield cost
    yield from payment_metrics(by_name)


PART = Part(notes=_notes, metrics=_metrics)
