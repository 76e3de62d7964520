"""Room left on instances, instances left of an offering, and places after a plan.

Only this module works these figures out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeVar

from eva_master.model.catalog import Catalog, Offering, Purchase, sold_as, tally
from eva_master.model.job import TaskSpec
from eva_master.model.planning.plan import Assign, Plan, Suspend
from eva_master.model.planning.snapshot import InstanceView, RunView, Snapshot
from eva_master.model.resources import NOTHING, Resources
from eva_master.model.values import once, replace, sameness
from eva_wire.values.ids import InstanceId, OfferingId, RunId

Place = InstanceId | int
"""An instance, or the key of one that a plan launches."""
_Name = TypeVar("_Name", bound=Place)


def need_on(task: TaskSpec, offering: Offering) -> Resources:
    """Resources that a task takes of an instance; nothing if it cannot run there."""
    return task.demand_on(offering.type.family) or NOTHING


def room_beside(offering: Offering, taken: Resources) -> Resources:
    """Room on an instance beside what is taken; negative amounts where that is too much."""
    return offering.type.capacity - taken


def room_left(
    offerings: Mapping[_Name, Offering],
    runs: Iterable[RunView],
    places: Mapping[RunId, Place | None] | None = None,
) -> dict[_Name, Resources]:
    """Room on each of some instances beside the task runs on them.

    Args:
        offerings: The instances.
        runs: Task runs; those elsewhere take no room.
        places: Where each run is; `None` for where it is now.
    """
    rooms = {name: offering.type.capacity for name, offering in offerings.items()}
    # Thousands of instances share a few amounts, and thousands of runs a few tasks.
    beside: dict[object, Resources] = {}  # has all rooms, so that keys stay theirs
    for run in runs if rooms else ():
        place = run.instance if places is None else places[run.id]
        if place in rooms:
            offering, room = offerings[place], rooms[place]
            key = sameness(room, run.task), offering.type.family
            if key not in beside:
                beside[key] = room - need_on(run.task, offering)
            rooms[place] = beside[key]
    return rooms


def places_after(snapshot: Snapshot, plan: Plan) -> dict[RunId, Place | None]:
    """Where each task run is once a plan is carried out; `None` without a place."""
    places: dict[RunId, Place | None] = {run.id: run.instance for run in snapshot.runs}
    for entry in plan.entries:
        if isinstance(entry, Assign):
            places[entry.run] = entry.on
        elif isinstance(entry, Suspend):
            places[entry.run] = None
    return places


def by_offering(instances: tuple[InstanceView, ...]) -> Counter[OfferingId]:
    """Number of instances by offering; a copy is changed, if need be."""
    return once(_by_offering, instances)


def _by_offering(instances: tuple[InstanceView, ...]) -> Counter[OfferingId]:
    return tally([view.offering for view in instances])


def more_of(offering: Offering, used: Mapping[OfferingId, int]) -> int | None:
    """How many more instances of an offering its limit allows; `None` without a limit.

    Negative if there are more than the limit, which may have been lowered.

    Args:
        offering: The offering.
        used: Number of instances by offering.
    """
    return None if offering.limit is None else offering.limit - used.get(offering.id, 0)


def may_buy_one(offering: Offering, used: Mapping[OfferingId, int]) -> bool:
    """Whether the limit of an offering allows one more instance; see `more_of`."""
    more = more_of(offering, used)
    return more is None or more > 0


def beside_limits(
    live: Iterable[InstanceView], draining: Iterable[InstanceView]
) -> Counter[OfferingId]:
    """Instances by which the limits of a snapshot's catalog are lower than those of the cluster.

    Drained instances count as of no offering in it, and so do instances told apart by their disks.
    """
    leaving = (view.offering for view in draining if view.offering.purchase is not Purchase.OWNED)
    apart = (view.offering for view in live if view.offering.by_disk)
    return Counter(map(sold_as, (*leaving, *apart)))


def with_lower_limits(catalog: Catalog, taken: Mapping[OfferingId, int]) -> Catalog:
    """A catalog with limits lower by instances that are taken from it."""
    return tuple(
        replace(offering, limit=max(0, more))
        if taken.get(offering.id) and (more := more_of(offering, taken)) is not None
        else offering
        for offering in catalog
    )
