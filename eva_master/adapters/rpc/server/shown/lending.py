"""Worth, payments and loans of tenants, as messages."""

from __future__ import annotations

from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.model.accounting.totals import TenantTotals
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.tenancy import LoanTerms
from eva_wire.values.ids import micro_usd


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


def borrowing_of(terms: LoanTerms | None) -> pb.Borrowing | None:
    """On what terms a job has room of others; `None` if it borrows none."""
    if terms is None:
        return None
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
