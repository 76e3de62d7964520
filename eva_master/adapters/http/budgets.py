"""Metrics of caps and budgets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from eva_master.model.planning.suspension import Suspender
from eva_master.ports.reading import ReadModel
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR, Millis

_LIMITS = {Suspender.COST: "job", Suspender.MONTH: "owner"}
"""Causes of suspensions by cost, with whose limit that is."""


@dataclass(frozen=True, slots=True)
class BudgetFigures:
    """Figures of caps and budgets that a scrape reads.

    Attributes:
        budgets: Budget of this month and what is spent of it, in dollars, by kind and name.
        capped: Number of jobs that are suspended by their own or their owner's limit.
        near: Number of other jobs that have spent most of their own.
    """

    budgets: Mapping[tuple[str, str], tuple[float, float]]
    capped: Mapping[str, int]
    near: int


def budget_figures(model: ReadModel, now: Millis) -> BudgetFigures:
    """Read the figures of a model as of `now`."""
    budgets = {
        ("tenant", name): (of.budget / MILLION, of.month / MILLION)
        for name, of in model.tenant_limits(now).items()
        if of.budget is not None
    }
    limited = [part for part in model.partitions.all if part.budget.per_month is not None]
    sums = model.of_partitions(now) if limited else {}
    for part in limited:
        most, spent = part.budget.per_month or 0, sums[part.name].month_charged
        budgets["partition", part.name] = (most / MILLION, spent / MILLIS_PER_HOUR / MILLION)
    capped: Counter[str] = Counter()
    near = 0
    for job in model.active.values():
        if job.suspension is not None and job.suspension.by in _LIMITS:
            capped[_LIMITS[job.suspension.by]] += 1
        elif job.cap_told:
            near += 1
    return BudgetFigures(budgets, capped, near)


def budget_metrics(figures: BudgetFigures) -> Iterator[Metric]:
    """Write the figures as metrics: their labels are names of the settings, not of users."""
    labels = ["scope", "name"]
    most = GaugeMetricFamily(
        "eva_budget_usd",
        "Budget of a partition or tenant for this month, UTC.",
        labels=labels,
    )
    spent = GaugeMetricFamily(
        "eva_budget_spent_usd", "Charged in this calendar month, UTC.", labels=labels
    )
    for party, (budget, charged) in sorted(figures.budgets.items()):
        most.add_metric(party, budget)
        spent.add_metric(party, charged)
    capped = GaugeMetricFamily(
        "eva_capped_jobs",
        "Jobs suspended at their own max_cost, or at their owner's limits.max_cost.",
        labels=["limit"],
    )
    for limit in _LIMITS.values():
        capped.add_metric([limit], figures.capped.get(limit, 0))
    nearly = GaugeMetricFamily(
        "eva_nearly_capped_jobs", "Jobs that have spent most of their max_cost.", figures.near
    )
    yield from (most, spent, capped, nearly)
