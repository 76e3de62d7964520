"""Terms and transfers of a plan, checked against the present state."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from eva_master.control.state.records import Records
from eva_master.model.tenants.tenancy import MOST_PAYMENT, LoanTerms, Transfer
from eva_wire.values.ids import JobId
from eva_wire.values.states import TERMINAL_JOB

_THOUSAND = 1_000


def lawful_terms(
    state: Records, terms: Sequence[LoanTerms], tenants: Collection[str]
) -> Iterator[LoanTerms]:
    """The valid ones of a plan's terms.

    Invalid are terms of a job that neither runs nor is about to, of more GPUs than it has, with
    unknown tenants, with invalid amounts, and all but the first of a job.

    Args:
        state: The records, with the plan's places as targets.
        terms: Terms of a plan.
        tenants: The names of all tenants.
    """
    seen: set[JobId] = set()
    for agreed in terms:
        if agreed.job in seen or not _is_sound(agreed, tenants):
            continue
        if agreed.gpus <= _gpus(state, agreed.job):
            seen.add(agreed.job)
            yield agreed


def lawful_transfers(
    transfers: Sequence[Transfer], tenants: Collection[str]
) -> tuple[Transfer, ...]:
    """The valid ones of a plan's payments: of an amount, from one tenant to another."""
    return tuple(
        transfer
        for transfer in transfers
        if {transfer.payer, transfer.payee} <= set(tenants)
        and transfer.payer != transfer.payee
        and _is_amount(transfer.amount)
        and transfer.amount
    )


def _is_sound(terms: LoanTerms, tenants: Collection[str]) -> bool:
    names = [name for name, _ in terms.lenders]
    gpus = type(terms.gpus) is int and terms.gpus > 0
    sound = gpus and len(set(names)) == len(names) > 0 and all(name in tenants for name in names)
    sound = sound and all(_is_amount(amount) for _, amount in terms.lenders)
    sound = sound and terms.per_hour <= MOST_PAYMENT
    if not sound or not terms.lent:
        return sound
    whole = all(type(count) is int and count >= 0 for count in terms.lent)
    fits = len(terms.lent) == len(names) and whole
    return fits and sum(terms.lent) <= terms.gpus * _THOUSAND


def _is_amount(amount: int) -> bool:
    return type(amount) is int and 0 <= amount <= MOST_PAYMENT


def _gpus(state: Records, name: JobId) -> int:
    """Number of GPUs that a job has, or is about to have; 0 if it has no place."""
    job = state.jobs.get(name)
    if job is None or job.state in TERMINAL_JOB:
        return 0
    gpus = 0
    for run in state.in_hand(name):
        if run.target is not None:
            family = state.instances[run.target].offering.type.family
            demand = job.spec.tasks[run.index].demand_on(family)
            gpus += 0 if demand is None else demand.gpus
    return gpus
