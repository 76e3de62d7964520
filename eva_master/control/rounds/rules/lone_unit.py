"""The stage that places a gang, or a task, that is alone and fits, whatever it is worth there.

A policy may leave tasks waiting since they are worth less together than an instance costs. Where
nothing else has a place that would be for ever. Limits that policies do not see may likewise cut
each plan for tasks that would fit on fewer or cheaper instances.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from eva_master.control.planning.validate_plan import Decision
from eva_master.control.settings import NO_LIMIT, Limits
from eva_master.model.catalog import Offering, Purchase
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Assign, NewInstance, Plan, Resize
from eva_master.model.planning.snapshot import InstanceView, Leeway, RunView, Snapshot
from eva_master.packing.alone.fit import fit
from eva_master.packing.alone.room import Caps, InstanceSeat, Stock
from eva_master.packing.plan_effect import PlanEffect
from eva_master.packing.room import may_buy_one, more_of
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, InstanceId

PricedAt = Callable[[RunView, Offering], int]
"""Price that may be paid for a task run on an offering, in millionths of micro-dollars per hour."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on the room that a lone unit gets.

    Attributes:
        leeway: Instances and dollars per hour that may still be launched.
        limits: Limits of the cluster.
        quota: Returns whether a tenant may have so many GPUs more, by base family; `None` without
            quotas.
        worth: Returns the highest price for a task run; `None` for any price.
        packs: Whether several tasks may share an instance.
    """

    leeway: Leeway
    limits: Limits
    quota: Callable[[str, Mapping[Family, int]], bool] | None = None
    worth: PricedAt | None = None
    packs: bool = True


def lone(effect: PlanEffect, decision: Decision) -> JobView | None:
    """The first waiting job, where nothing has a place or gets one.

    Args:
        effect: The policy's plan.
        decision: The part of it that is carried out.
    """
    busy = any(run.instance is not None for run in effect.now.runs)
    leaving = any(view.residents for view in effect.now.draining)
    if busy or leaving or decision.places or decision.forks:
        return None
    jobs = [job for job in effect.now.jobs if job.runs]
    return min(jobs, key=lambda job: (-job.priority, job.submitted_ms, job.id), default=None)


def placed_alone(effect: PlanEffect, job: JobView, bounds: Bounds) -> Plan | None:
    """A plan that places a lone job as well: the whole of a gang, the first task of an array.

    Args:
        effect: The policy's plan, which leaves the job waiting.
        job: The job, see `lone`.
        bounds: The limits.

    Returns:
        `None` if the job does not fit, stands in a line, or is not held by the plan.
    """
    plan, present, views = effect.plan, effect.now, effect.runs
    if effect.held.keys().isdisjoint(job.runs) or any(job.id in line.jobs for line in plan.lines):
        return None
    gang = job.spec.kind is JobKind.GANG
    runs = [views[name] for name in (job.runs if gang else job.runs[:1])]
    if any(run.pinned for run in runs):
        return None
    elastic = job.sharing.elastic
    for count in dict.fromkeys((len(runs), elastic.least if elastic else len(runs))):
        seating = _seated(plan, job, runs[:count], present, bounds)
        if seating is not None and count < len(runs):
            resized = Resize(job.id, count, "there is room for no more")
            sizes = (*(size for size in seating.sizes if size.job != job.id), resized)
            return replace(seating, sizes=sizes)
        if seating is not None:
            return seating
    return None


def _seated(
    plan: Plan, job: JobView, runs: Sequence[RunView], present: Snapshot, bounds: Bounds
) -> Plan | None:
    """The plan with places for some task runs."""
    pooled = {member for pool in plan.pools for member in pool.members}
    idle: dict[Offering, list[InstanceView]] = {}
    for view in present.instances:
        if not view.pool and view.id not in pooled:
            idle.setdefault(view.offering, []).append(view)
    for views in idle.values():
        views.sort(key=lambda view: (not view.ready, view.id))
    stocks = _stocks(present, idle)
    seats = fit([run.task for run in runs], stocks, _caps(job, runs, bounds)).seats
    if seats is None:
        return None
    first = max((launch.key for launch in plan.launches), default=-1) + 1
    launches: dict[InstanceSeat, NewInstance] = {}
    entries = []
    for run, seat in zip(runs, seats, strict=True):
        stock = stocks[seat.stock]
        where: InstanceId | int
        if seat.number < stock.idle:
            where = idle[stock.offering][seat.number].id
        else:
            fresh = NewInstance(first + len(launches), stock.offering)
            where = launches.setdefault(seat, fresh).key
        entries.append(Assign(run.id, where))
    gang = job.spec.kind is JobKind.GANG
    ours = {*job.runs} if gang else {run.id for run in runs}
    kept = (entry for entry in plan.entries if entry.run not in ours)
    bought = (*plan.launches, *launches.values())
    return replace(plan, launches=bought, entries=(*kept, *entries))


def _stocks(
    present: Snapshot, idle: Mapping[Offering, Sequence[InstanceView]]
) -> tuple[Stock, ...]:
    """Present instances, and offerings that may be launched."""
    used = Counter(view.offering.id for view in present.instances)
    on_sale = [
        offering
        for offering in present.catalog
        if offering.purchase is not Purchase.OWNED and offering.available(present.now_ms)
    ]
    stocks = [Stock(offering, idle=len(views), most=0) for offering, views in idle.items()]
    for offering in on_sale:
        more = more_of(offering, used)
        if may_buy_one(offering, used):
            stocks.append(Stock(offering, most=more))
    return tuple(stocks)


def _caps(job: JobView, runs: Sequence[RunView], bounds: Bounds) -> Caps:
    """The limits, for the tasks of one job."""
    leeway, limits, worth, quota = bounds.leeway, bounds.limits, bounds.worth, bounds.quota
    places = min(limits.instances_per_job, limits.instances_per_user)

    def priced(index: int, offering: Offering) -> int:
        assert worth is not None
        return worth(runs[index], offering)

    def allowed(gpus: Mapping[Family, int]) -> bool:
        assert quota is not None
        return quota(job.spec.tenant, gpus)

    return Caps(
        launches=leeway.instances,
        places=None if places >= NO_LIMIT else places,
        per_hour=leeway.per_hour,
        quota=None if quota is None else allowed,
        worth=None if worth is None else priced,
        apart=not bounds.packs,
    )
