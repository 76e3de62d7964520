"""Worth of jobs, for views, bookings and dry runs."""

from __future__ import annotations

from eva_master.control.measure import remaining
from eva_master.control.state.records import PlanningRecords
from eva_master.control.state.store import State
from eva_master.model.accounting.worth import Worth
from eva_master.model.records import Job
from eva_master.packing.valuation.job_worth import worth_of
from eva_wire.values.ids import Millis


def of_job(state: PlanningRecords, job: Job) -> Worth | None:
    """Worth of a job, see `packing.valuation.job_worth.worth_of`."""
    if job.spec.worth is not None:
        return job.spec.worth
    estimate = remaining.expected(state, job)
    return worth_of(None, _price(state, job), None if estimate is None else estimate.mean_ms)


def book(state: State, job: Job, now: Millis) -> None:
    """Book what a job that succeeds at this moment is worth, once, to its tenant.

    A job of which nothing told how long it would take took as long as its tasks ran on average.
    """
    worth = of_job(state, job)
    if worth is None:
        account = state.job_accounts.get(job.id)
        ran = 0 if account is None else account.busy_ms // job.spec.size
        worth = worth_of(None, _price(state, job), ran)
    if worth is not None:
        state.tally.lending.tenants.succeeded(job.spec.tenant, worth.after(now - job.arrived_ms))


def _price(state: PlanningRecords, job: Job) -> int:
    """Its reservation price; that of equal tasks of an array is asked for once."""
    if job.is_gang:
        return sum(reserved.price for reserved in state.prices.of(job.spec))
    kinds = job.spec.of_tasks(state.tasks.kinds(job.id))
    counts = map(len, state.tasks.by_kind(job.id))
    prices = (reserved.price for reserved in state.prices.of(kinds))
    return sum(price * count for price, count in zip(prices, counts, strict=True))
