"""Debts between tenants: beside the cloud's bill, never in it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import islice

from eva_master.control.features.lending.validate_terms import lawful_terms, lawful_transfers
from eva_master.control.measure.ledger import gpu_time
from eva_master.control.state.parts.lending import Agreement, run_up
from eva_master.control.state.records import Records
from eva_master.control.state.store import State
from eva_master.model.accounting.ended_jobs import EndedJob
from eva_master.model.accounting.totals import NO_TOTALS, TenantTotals
from eva_master.model.planning.plan import Plan
from eva_master.model.records import Job, TaskRun
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.states import RunState

_LOOKED_AT = 100
"""The starts of so many tasks of a job are looked at when it is over."""


def holds_room(state: Records, job: JobId) -> bool:
    """Whether a task of a job has an instance."""
    return any(run.instance is not None for run in state.in_hand(job))


def book(state: State, job: JobId, until: Millis) -> None:
    """Book what a job owes up to a moment; call it before its tasks change their places."""
    if state.tally.lending.of(job) is not None:
        state.tally.lending.book(job, until, holds=holds_room(state, job))


def adopt(
    state: State, plan: Plan, ours: Iterable[JobId], tenants: Collection[str], now: Millis
) -> None:
    """Apply a plan's terms and transfers, once its places are targets.

    Args:
        state: The state, which is changed.
        plan: The plan as its policy made it; impossible terms and transfers are dropped.
        ours: The jobs with terms that the plan covers.
        tenants: The names of all tenants.
        now: The time.
    """
    agreed = {terms.job: terms for terms in lawful_terms(state, plan.loans.terms, tenants)}
    for job in ours:
        if (agreement := state.tally.lending.of(job)) is not None and agreement.terms != agreed.get(
            job
        ):
            book(state, job, now)
            if job not in agreed:
                state.tally.lending.end(job)
    for job, terms in agreed.items():
        if (agreement := state.tally.lending.of(job)) is None or agreement.terms != terms:
            state.tally.lending.agree(terms, state.jobs[job].spec.tenant, now)
    state.tally.lending.transfer(lawful_transfers(plan.loans.transfers, tenants))


def end(state: State, job: JobId, now: Millis) -> None:
    """Book what a job owes that is over, and let go of its terms."""
    if state.tally.lending.of(job) is not None:
        book(state, job, now)
        state.tally.lending.end(job)


def note_end(state: State, job: Job, partition: str, now: Millis, *, succeeded: bool) -> None:
    """Remember the outcome of a job that is over, or has left a partition.

    Args:
        state: The state, which is changed.
        job: The job.
        partition: Its partition.
        now: The time.
        succeeded: Whether it ended with success.
    """
    runs = islice(state.members(job.id), _LOOKED_AT)
    state.tally.lending.note_end(
        EndedJob(
            job.id,
            job.spec.tenant,
            partition,
            now,
            succeeded=succeeded,
            gpu_ms=state.tasks.gpu_ms(job.id),
            start_ms=max(map(_started_in_ms, runs), default=0),
        )
    )


def _started_in_ms(run: TaskRun) -> int:
    """How long the last start of a task run took, 0 if that is not on record."""
    began = 0
    for state, at in reversed(run.history):
        if state == RunState.RUNNING:
            began = at
        elif state == RunState.STARTING and began:
            return max(0, began - at)
    return 0


def running(
    state: Records, agreements: Mapping[JobId, Agreement], now: Millis
) -> Mapping[str, TenantTotals]:
    """Sums of tenants since the last bookings, up to `now`, without booking them."""
    sums: dict[str, TenantTotals] = {}
    for job, agreed in agreements.items():
        if job in state.jobs and holds_room(state, job):
            for tenant, more in run_up(agreed, now):
                sums[tenant] = sums.get(tenant, NO_TOTALS) + more
    for name in state.live:
        account = state.instance_accounts.get(name)
        if account is None or account.closed or account.until_ms >= now:
            continue
        for tenant, gpu_ms in gpu_time(state, state.instances[name], now - account.until_ms):
            sums[tenant] = sums.get(tenant, NO_TOTALS) + TenantTotals(gpu_ms=gpu_ms)
    return sums
