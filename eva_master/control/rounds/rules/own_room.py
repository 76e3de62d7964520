"""Empty and new instances for task runs that belong together, within all limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from eva_master.control.settings import NO_LIMIT, Limits
from eva_master.model.catalog import Offering, Purchase
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import NewInstance
from eva_master.model.planning.snapshot import InstanceView, Leeway, RunView
from eva_master.packing.alone.fit import fit
from eva_master.packing.alone.room import Caps, InstanceSeat, Stock
from eva_master.packing.plan_effect import PlanEffect
from eva_master.packing.room import Place, may_buy_one, more_of
from eva_wire.values.ids import Family, InstanceId, RunId

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


@dataclass(frozen=True, slots=True)
class OwnRoom:
    """Instances on which no other task runs are.

    Attributes:
        places: The instance of each task run.
        launches: The instances among them that are to be launched.
    """

    places: Mapping[RunId, Place]
    launches: Sequence[NewInstance]


def own_room(
    effect: PlanEffect,
    job: JobView,
    runs: Sequence[RunView],
    bounds: Bounds,
    *,
    admits: Callable[[Offering], bool] = lambda _: True,
    closed: Collection[Place] = frozenset(),
) -> OwnRoom | None:
    """Room for some task runs of a job beside a plan; `None` if there is none.

    Args:
        effect: The plan, which has no places for them.
        job: The job.
        runs: The task runs.
        bounds: The limits.
        admits: Returns whether an offering may be used.
        closed: Instances that are kept for other task runs.
    """
    taken = effect.used.union(effect.occupants, closed)
    idle: dict[Offering, list[InstanceView]] = {}
    for view in effect.now.instances:
        if not view.pool and view.id not in taken and admits(view.offering):
            idle.setdefault(view.offering, []).append(view)
    for views in idle.values():
        views.sort(key=lambda view: (not view.ready, view.id))
    stocks = [stock for stock in _stocks(effect, idle) if admits(stock.offering)]
    seats = fit([run.task for run in runs], stocks, _caps(job, runs, bounds)).seats
    if seats is None:
        return None
    first = max((launch.key for launch in effect.plan.launches), default=-1) + 1
    launches: dict[InstanceSeat, NewInstance] = {}
    places: dict[RunId, InstanceId | int] = {}
    for run, seat in zip(runs, seats, strict=True):
        stock = stocks[seat.stock]
        if seat.number < stock.idle:
            places[run.id] = idle[stock.offering][seat.number].id
        else:
            fresh = NewInstance(first + len(launches), stock.offering)
            places[run.id] = launches.setdefault(seat, fresh).key
    return OwnRoom(places, tuple(launches.values()))


def _stocks(
    effect: PlanEffect, idle: Mapping[Offering, Sequence[InstanceView]]
) -> tuple[Stock, ...]:
    """Empty instances, and offerings that may be launched."""
    present, used = effect.now, Counter(offering.id for offering in effect.offerings.values())
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
