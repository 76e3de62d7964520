"""What a plan says about money between tenants, checked against what is true now."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from eva_master.control.state.records import Records
from eva_master.model.ids import JobId
from eva_master.model.planning.tenancy import MOST_PAYMENT, Terms, Transfer
from eva_master.model.states import TERMINAL_JOB

_THOUSAND = 1_000


def lawful_terms(
    state: Records, terms: Sequence[Terms], tenants: Collection[str]
) -> Iterator[Terms]:
    """Those terms that can be in force.

    Left out are those of a job that neither runs nor is about to, of more GPUs than it has, with
    unknown tenants, with amounts that are none, and all but the first of a job.

    Args:
        state: With the plan's places as targets.
        terms: A plan's.
        tenants: The names of all tenants.
    """
    seen: set[JobId] = set()
    for one in terms:
        if one.job in seen or not _is_sound(one, tenants):
            continue
        if one.gpus <= _gpus(state, one.job):
            seen.add(one.job)
            yield one


def lawful_transfers(
    transfers: Sequence[Transfer], tenants: Collection[str]
) -> tuple[Transfer, ...]:
    """Those payments that are of an amount, from a tenant to another one."""
    return tuple(
        one
        for one in transfers
        if {one.payer, one.payee} <= set(tenants)
        and one.payer != one.payee
        and _is_amount(one.amount)
        and one.amount
    )


def _is_sound(terms: Terms, tenants: Collection[str]) -> bool:
    names = [name for name, _ in terms.lenders]
    gpus = type(terms.gpus) is int and terms.gpus > 0
    sound = gpus and len(set(names)) == len(names) > 0 and all(it in tenants for it in names)
    sound = sound and all(_is_amount(amount) for _, amount in terms.lenders)
    sound = sound and terms.per_hour <= MOST_PAYMENT
    if not sound or not terms.lent:
        return sound
    whole = all(type(it) is int and it >= 0 for it in terms.lent)
    fits = len(terms.lent) == len(names) and whole
    return fits and sum(terms.lent) <= terms.gpus * _THOUSAND


def _is_amount(amount: int) -> bool:
    return type(amount) is int and 0 <= amount <= MOST_PAYMENT


def _gpus(state: Records, name: JobId) -> int:
    """How many GPUs a job has, or is about to have; 0 if it has no place."""
    job = state.jobs.get(name)
    if job is None or job.state in TERMINAL_JOB:
        return 0
    found = 0
    for run in state.in_hand(name):
        if run.target is not None:
            family = state.instances[run.target].offering.type.family
            demand = job.spec.tasks[run.index].demand_on(family)
            found += 0 if demand is None else demand.gpus
    return found
