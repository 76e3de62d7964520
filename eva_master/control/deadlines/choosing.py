"""How a job stands on the spot market: where it is, what is there, and what is expected."""

from __future__ import annotations

from collections.abc import Iterator

from eva_master.control.context import Context
from eva_master.control.deadlines.slack import Slack, in_work
from eva_master.control.measure.throughput import worked_ms
from eva_master.control.state.records import PlanningRecords
from eva_master.control.state.store import State
from eva_master.learning.market.pools import Pool
from eva_master.learning.market.spot_market import pool_of
from eva_master.model.catalog import Offering, Purchase
from eva_master.model.ids import MILLION, MILLIS_PER_HOUR, Millis
from eva_master.model.job import TaskSpec
from eva_master.model.records import Job, TaskRun
from eva_master.model.resources import Resources
from eva_master.model.states import RunState
from eva_master.packing.deadlines.choice import Situation
from eva_master.packing.deadlines.outlook import MIDDLE_AGE_MS, outlook
from eva_master.packing.deadlines.table import Choice, Outlook


def situation_of(state: PlanningRecords, job: Job, stands: Slack, now: Millis) -> Situation:
    """Where a job with a deadline is."""
    place, pools = _place(state, job)
    usable = [it for it in _usable(state, job) if it.purchase is Purchase.SPOT]
    there = place is Choice.SPOT or any(it.available(now) for it in usable)
    if place is not Choice.SPOT:
        pools = {pool_of(it) for it in usable if it.available(now) is there}
    ages = [_age_ms(state, pool, now, held=place is Choice.SPOT) for pool in pools]
    # Whatever is there it may have; nothing has been there since the last one went.
    age_ms = max(ages) if there and place is not Choice.SPOT else min(ages, default=0)
    assert job.spec.deadline is not None
    given_ms = job.spec.deadline.due_ms(job.submitted_ms, state.wall) - job.submitted_ms
    gone_ms = now - job.submitted_ms
    # What is left takes as much of the whole time as there is of it, less what may be lost.
    due_left_ms = max(0, given_ms - gone_ms)
    work_ms = stands.left_ms + _done_ms(state, job, now)
    even_ms = work_ms * due_left_ms // max(1, given_ms)
    return Situation(
        stands.left_ms,
        stands.slack_ms,
        stands.change_ms,
        place,
        there,
        age_ms,
        ahead_ms=even_ms - stands.left_ms,
    )


_MANY = 32
"""Nobody looks for room beside others for more tasks at once, since each asks all instances."""


def has_room(context: Context, job: Job) -> bool:
    """Whether a job has room on instances on demand that are there anyway.

    It costs next to nothing there, beside what they are for: nobody need wait for less. A job that
    is kept alone shares none.
    """
    state = context.state
    rooms = _rooms_on_demand(context)
    tasks = [state.task(it) for it in in_work(state, job)] if job.is_gang else state.kinds(job.id)
    if len(tasks) > _MANY:
        return False
    for task in tasks:
        found = next((it for it in rooms if _takes(task, it)), None)
        if found is None:
            return False
        if job.is_gang:
            place, free = found
            need = task.demand_on(place.type.family)
            assert need is not None
            rooms = [(place, free - need) if it is found else it for it in rooms]
    return bool(tasks)


_Free = tuple[Offering, Resources]


def _takes(task: TaskSpec, room: _Free) -> bool:
    place, free = room
    need = task.demand_on(place.type.family)
    return need is not None and need.fits(free)


def _rooms_on_demand(context: Context) -> list[_Free]:
    """What is free on instances on demand, as of the beginning of this turn."""
    memory = context.deadlines
    if memory.free[0] != context.now:
        memory.free = context.now, list(_found_rooms(context.state))
    return memory.free[1]


def _found_rooms(state: State) -> Iterator[_Free]:
    for name in state.live:
        instance = state.instances[name]
        if instance.offering.purchase is Purchase.SPOT or not instance.takes_tasks:
            continue
        there = state.targeting(name)
        if there and not any(state.jobs[it.job].buys.alone for it in there):
            free = instance.offering.type.capacity - state.demand(there, instance)
            yield instance.offering, free


def is_crowded(context: Context, job: Job, stands: Slack) -> bool:
    """Whether a job with little time to lose is to leave spot pools to others.

    Who has no time for a second change is hurt if many lose their instances at once: so of all
    such work only a share may be in one pool.
    """
    share_ppm, thin = context.settings.pool_share_ppm, context.deadlines.thin_work
    if share_ppm >= MILLION:
        return False
    if stands.slack_ms >= stands.reserve_ms:
        thin.drop(job.id)
        return False
    state = context.state
    _, pools = _place(state, job)
    prices = (state.reservation(run).price for run in in_work(state, job))
    work = max(1, stands.left_ms * sum(prices))
    thin.put(job.id, pools, work)
    if pools:
        return any(thin.is_crowded(pool, share_ppm) for pool in pools)
    usable = {pool_of(it) for it in _usable(state, job) if it.purchase is Purchase.SPOT}
    return all(thin.is_crowded(pool, share_ppm, more=work) for pool in usable)


def _done_ms(state: PlanningRecords, job: Job, now: Millis) -> int:
    """How long the task has worked that has worked for longest."""
    runs = in_work(state, job)
    running = {it.id for it in runs if it.state is RunState.RUNNING}
    worked = (it.work_ms + (worked_ms(state, it, now) if it.id in running else 0) for it in runs)
    return max(worked, default=0)


def what_is_expected(context: Context, job: Job) -> Outlook:
    """What is expected of the spot instances that a job may run on.

    It changes slowly, and tables that are made of it take long: so it is as of the last hour.
    """
    pools, price_ppm = _spot_market(context.state, job)
    until, known = context.deadlines.outlooks.get(pools, (0, None))
    if known is None or context.now >= until:
        known = outlook(context.state.market.pools, pools, price_ppm)
        context.deadlines.outlooks[pools] = Millis(context.now + MILLIS_PER_HOUR), known
    return known


def expected_afresh(state: PlanningRecords, job: Job) -> Outlook:
    """Like `what_is_expected`, worked out anew."""
    pools, price_ppm = _spot_market(state, job)
    return outlook(state.market.pools, pools, price_ppm)


def _spot_market(state: PlanningRecords, job: Job) -> tuple[tuple[Pool, ...], int]:
    """The spot pools that a job may use, and their least price against the least on demand."""
    usable = _usable(state, job)
    spot = [it for it in usable if it.purchase is Purchase.SPOT]
    others = [it.price for it in usable if it.purchase is not Purchase.SPOT]
    cheapest = min(others, default=0)
    price_ppm = MILLION * min(it.price for it in spot) // max(1, cheapest) if spot else MILLION
    return tuple(dict.fromkeys(map(pool_of, spot))), price_ppm


def _usable(state: PlanningRecords, job: Job) -> list[Offering]:
    """Offerings of which one instance has room for any of its tasks."""
    kinds = state.kinds(job.id)
    return [it for it in state.catalog if all(_fits(kind, it) for kind in kinds)]


def _fits(task: TaskSpec, offering: Offering) -> bool:
    need = task.demand_on(offering.type.family)
    return need is not None and need.fits(offering.type.capacity)


def _place(state: PlanningRecords, job: Job) -> tuple[Choice, set[Pool]]:
    """Where its tasks are to be; the worst for all."""
    here = [_offering(state, it) for it in in_work(state, job)]
    known = [it for it in here if it is not None]
    if not known or len(known) < len(here):
        return Choice.WAIT, set()
    spot = {pool_of(it) for it in known if it.purchase is Purchase.SPOT}
    return (Choice.SPOT, spot) if spot else (Choice.ON_DEMAND, set())


def _offering(state: PlanningRecords, run: TaskRun) -> Offering | None:
    return None if run.target is None else state.instances[run.target].offering


def _age_ms(state: PlanningRecords, pool: Pool, now: Millis, *, held: bool) -> int:
    age_ms = state.market.pools.age_ms(pool, now, held=held)
    return MIDDLE_AGE_MS if age_ms is None else age_ms
