"""How a job stands on the spot market: where it is, what is there, and what is expected."""

from __future__ import annotations

from collections.abc import Iterator

from eva_master.control.context import Context
from eva_master.control.features.deadlines.memory import DeadlineMemory
from eva_master.control.features.deadlines.slack import Slack, in_work
from eva_master.control.measure.throughput import worked_ms
from eva_master.control.state.records import PlanningRecords
from eva_master.control.state.store import State
from eva_master.learning.market.pools import SpotPool
from eva_master.learning.market.spot_market import pool_of
from eva_master.model.catalog import Offering, Purchase
from eva_master.model.job import TaskSpec
from eva_master.model.records import Job, TaskRun
from eva_master.model.resources import Resources
from eva_master.packing.deadlines.choice import Situation
from eva_master.packing.deadlines.outlook import MIDDLE_AGE_MS, outlook
from eva_master.packing.deadlines.table import MarketChoice, SpotForecast
from eva_master.packing.room import room_beside
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR, Millis
from eva_wire.values.states import RunState


def situation_of(state: PlanningRecords, job: Job, stands: Slack, now: Millis) -> Situation:
    """Situation of a job with a deadline."""
    place, pools = _place(state, job)
    usable = [offering for offering in _usable(state, job) if offering.purchase is Purchase.SPOT]
    available = place is MarketChoice.SPOT or any(offering.available(now) for offering in usable)
    if place is not MarketChoice.SPOT:
        pools = {pool_of(offering) for offering in usable if offering.available(now) is available}
    ages = [_age_ms(state, pool, now, held=place is MarketChoice.SPOT) for pool in pools]
    # An available pool's best age counts; without one, the time since the last pool went away.
    age_ms = max(ages) if available and place is not MarketChoice.SPOT else min(ages, default=0)
    assert job.spec.deadline is not None
    given_ms = job.spec.deadline.due_ms(job.submitted_ms, state.wall) - job.submitted_ms
    gone_ms = now - job.submitted_ms
    # Even progress: the remaining work has the same share of the work as the remaining time has of
    # the time.
    due_left_ms = max(0, given_ms - gone_ms)
    work_ms = stands.left_ms + _done_ms(state, job, now)
    even_ms = work_ms * due_left_ms // max(1, given_ms)
    return Situation(
        stands.left_ms,
        stands.slack_ms,
        stands.change_ms,
        place,
        available,
        age_ms,
        ahead_ms=even_ms - stands.left_ms,
    )


_MANY = 32
"""Upper limit of the tasks for which room beside others is looked for, since each checks all
instances.
"""


def has_room(context: Context, job: Job) -> bool:
    """Whether a job has room on existing on-demand instances.

    Room there costs next to nothing, so waiting would not save anything. A job that is kept alone
    shares none.
    """
    state = context.state
    rooms = _rooms_on_demand(context)
    tasks = (
        [state.task(run) for run in in_work(state, job)]
        if job.is_gang
        else state.tasks.kinds(job.id)
    )
    if len(tasks) > _MANY:
        return False
    for task in tasks:
        host = next((room for room in rooms if _takes(task, room)), None)
        if host is None:
            return False
        if job.is_gang:
            place, free = host
            need = task.demand_on(place.type.family)
            assert need is not None
            rooms = [(place, free - need) if room is host else room for room in rooms]
    return bool(tasks)


_Free = tuple[Offering, Resources]


def _takes(task: TaskSpec, room: _Free) -> bool:
    place, free = room
    need = task.demand_on(place.type.family)
    return need is not None and need.fits(free)


def _rooms_on_demand(context: Context) -> list[_Free]:
    """Free room on on-demand instances, as of the beginning of this turn."""
    memory = context.memory(DeadlineMemory)
    if memory.free[0] != context.now:
        memory.free = context.now, list(_found_rooms(context.state))
    return memory.free[1]


def _found_rooms(state: State) -> Iterator[_Free]:
    for name in state.live:
        instance = state.instances[name]
        if instance.offering.purchase is Purchase.SPOT or not instance.takes_tasks:
            continue
        targeting = state.places.targeting(name)
        if targeting and not any(state.jobs[run.job].buys.alone for run in targeting):
            yield (
                instance.offering,
                room_beside(instance.offering, state.demand(targeting, instance)),
            )


def is_crowded(context: Context, job: Job, stands: Slack) -> bool:
    """Whether a job with little time to lose is to leave spot pools to others.

    Jobs without time for a second change are hurt if many lose their instances at once: so only a
    share of all such work may be in one pool.
    """
    share_ppm, thin = context.settings.pool_share_ppm, context.memory(DeadlineMemory).thin_work
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
    usable = {
        pool_of(offering) for offering in _usable(state, job) if offering.purchase is Purchase.SPOT
    }
    return all(thin.is_crowded(pool, share_ppm, more=work) for pool in usable)


def _done_ms(state: PlanningRecords, job: Job, now: Millis) -> int:
    """Work done by the task that has worked longest."""
    runs = in_work(state, job)
    running = {run.id for run in runs if run.state is RunState.RUNNING}
    worked = (
        run.work_ms + (worked_ms(state, run, now) if run.id in running else 0) for run in runs
    )
    return max(worked, default=0)


def what_is_expected(context: Context, job: Job) -> SpotForecast:
    """Forecast for the spot instances that a job may run on.

    The forecast changes slowly, and tables made from it take long, so it is renewed once an hour.
    """
    pools, price_ppm = _spot_market(context.state, job)
    outlooks = context.memory(DeadlineMemory).outlooks
    until, forecast = outlooks.get(pools, (0, None))
    if forecast is None or context.now >= until:
        forecast = outlook(context.state.market.pools, pools, price_ppm)
        outlooks[pools] = Millis(context.now + MILLIS_PER_HOUR), forecast
    return forecast


def expected_afresh(state: PlanningRecords, job: Job) -> SpotForecast:
    """Like `what_is_expected`, worked out anew."""
    pools, price_ppm = _spot_market(state, job)
    return outlook(state.market.pools, pools, price_ppm)


def _spot_market(state: PlanningRecords, job: Job) -> tuple[tuple[SpotPool, ...], int]:
    """The spot pools that a job may use, and their least price against the least on demand."""
    usable = _usable(state, job)
    spot = [offering for offering in usable if offering.purchase is Purchase.SPOT]
    others = [offering.price for offering in usable if offering.purchase is not Purchase.SPOT]
    cheapest = min(others, default=0)
    price_ppm = (
        MILLION * min(offering.price for offering in spot) // max(1, cheapest) if spot else MILLION
    )
    return tuple(dict.fromkeys(map(pool_of, spot))), price_ppm


def _usable(state: PlanningRecords, job: Job) -> list[Offering]:
    """Offerings of which one instance has room for any of its tasks."""
    kinds = state.tasks.kinds(job.id)
    return [offering for offering in state.catalog if all(_fits(kind, offering) for kind in kinds)]


def _fits(task: TaskSpec, offering: Offering) -> bool:
    need = task.demand_on(offering.type.family)
    return need is not None and need.fits(offering.type.capacity)


def _place(state: PlanningRecords, job: Job) -> tuple[MarketChoice, set[SpotPool]]:
    """The market of its tasks' places; the worst one counts for all."""
    here = [_offering(state, run) for run in in_work(state, job)]
    placed = [offering for offering in here if offering is not None]
    if not placed or len(placed) < len(here):
        return MarketChoice.WAIT, set()
    spot = {pool_of(offering) for offering in placed if offering.purchase is Purchase.SPOT}
    return (MarketChoice.SPOT, spot) if spot else (MarketChoice.ON_DEMAND, set())


def _offering(state: PlanningRecords, run: TaskRun) -> Offering | None:
    return None if run.target is None else state.instances[run.target].offering


def _age_ms(state: PlanningRecords, pool: SpotPool, now: Millis, *, held: bool) -> int:
    age_ms = state.market.pools.age_ms(pool, now, held=held)
    return MIDDLE_AGE_MS if age_ms is None else age_ms
