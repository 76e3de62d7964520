"""Worth, payments and loans of tenants, as messages and metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric

from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.adapters.rpc.server.shown.part import Asked, Part
from eva_master.model.accounting.totals import TenantTotals
from eva_master.model.planning.job_view import JobView
from eva_master.model.tenants.tenancy import LoanTerms
from eva_master.ports.previews import Foreseen
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR, micro_usd


def payments_of(of: TenantTotals) -> pb.Tenant:
    """The part of a message about value, payments and GPU time."""
    return pb.Tenant(
        value_micro_usd=of.value,
        paid_micro_usd=micro_usd(of.paid),
        earned_micro_usd=micro_usd(of.earned),
        received_micro_usd=of.received,
        given_micro_usd=of.given,
        own_gpu_ms=of.own_ms,
        borrowed_gpu_ms=of.borrowed_ms,
        lent_gpu_ms=of.lent_ms,
    )


def borrowing_of(terms: LoanTerms) -> pb.Borrowing:
    """On what terms a job has room of others."""
    lent = terms.lent or (None,) * len(terms.lenders)
    return pb.Borrowing(
        gpus=terms.gpus,
        micro_usd_per_hour=terms.per_hour,
        lenders=[
            pb.Lender(tenant=tenant, micro_usd_per_hour=amount, gpus_thousandths=gpus)
            for (tenant, amount), gpus in zip(terms.lenders, lent, strict=True)
        ],
    )


def worth_of(view: JobView) -> pb.JobWorth | None:
    """The worth of a job when it is done; `None` if unknown."""
    worth, length = (
        view.tenancy.worth,
        None if view.progress.estimate is None else view.progress.estimate.mean_ms,
    )
    if worth is None:
        return None
    return pb.JobWorth(
        at_once_micro_usd=worth.after(0),
        done_micro_usd=None if length is None else worth.after(length),
        length_ms=length,
        loss_micro_usd_per_hour=worth.loss_per_hour(length or 0),
    )


def payment_metrics(tenants: Mapping[str, TenantTotals]) -> Iterator[Metric]:
    """Worth, payments and debts of tenants."""
    value = CounterMetricFamily(
        "eva_tenant_value_usd",
        "What a tenant's jobs were worth when they succeeded.",
        labels=["tenant"],
    )
    paid = CounterMetricFamily(
        "eva_tenant_paid_usd", "Paid by a tenant for room of others.", labels=["tenant"]
    )
    earned = CounterMetricFamily(
        "eva_tenant_earned_usd", "Earned by a tenant with room that others had.", labels=["tenant"]
    )
    for tenant, sums in sorted(tenants.items()):
        value.add_metric([tenant], sums.value / MILLION)
        paid.add_metric([tenant], sums.paid / MILLIS_PER_HOUR / MILLION)
        earned.add_metric([tenant], sums.earned / MILLIS_PER_HOUR / MILLION)
    yield from (value, paid, earned)


def _explanation(asked: Asked) -> pb.Explanation | None:
    terms = asked.model.terms_of(asked.record.job.id)
    return None if terms is None else pb.Explanation(borrowing=borrowing_of(terms))


def _plan(foreseen: Foreseen) -> pb.PlanResponse | None:
    return None if foreseen.job is None else pb.PlanResponse(worth=worth_of(foreseen.job))


PART = Part(explanation=_explanation, plan=_plan)
