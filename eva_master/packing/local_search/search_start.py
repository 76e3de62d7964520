"""Begin and end of a search: a configuration by numbers instead of names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from eva_master.model.planning.plan import NewInstance
from eva_master.packing.configuration.build import Configuration, Host, rearranged
from eva_master.packing.local_search.cost_model import MoveCosts, gang_loss
from eva_master.packing.local_search.load_cache import Load, LoadCache
from eva_master.packing.problem import Problem
from eva_master.packing.room import more_of
from eva_wire.values.ids import MILLION, InstanceId, Millis, RunId

NEW = -1
"""Offering of an instance that is to be launched: the cheapest one for its load."""
NOWHERE = -1
"""Home of a task run that is on no live instance."""


@dataclass(frozen=True, slots=True)
class SearchStart:
    """A configuration to be improved, by numbers of task runs, groups and instances.

    Task runs that move together, a whole gang or a single one, are a group.

    Attributes:
        ids: Of each task run.
        classes: Number of each task run's class in the cache.
        groups: Number of each task run's group.
        homes: The live instance that each task run is on now, or `NOWHERE`.
        places: The instance that each task run is on in this configuration.
        movable: Whether each task run may leave: none that is pinned, nor in an incomplete gang.
        shares: Least cost of each task run if others fill the rest of its instance.
        ends: For task runs that end soon: time in milliseconds from now by which a new instance
            must be up, so that they still run there.
        move_costs: Cost of moving each group.
        charges: Charge of each group that is a gang, 0 for others.
        instances: Every live instance; `None` for those to be launched, which come last.
        offerings: Number of each instance's offering, or `NEW`.
        prices: Price of each live instance, in millionths of micro-dollars per hour.
        loads: The load of each instance.
        staying: The part of it that may not leave.
        limits: How many more instances of each limited offering may be launched, by its number.
        total: Cost of the configuration, see `configuration_cost.evaluate`. Where limits keep a new
            instance from being the cheapest that would do, it is less.
    """

    ids: Sequence[RunId]
    classes: Sequence[int]
    groups: Sequence[int]
    homes: Sequence[int]
    places: Sequence[int]
    movable: Sequence[bool]
    shares: Sequence[int]
    ends: Mapping[int, int]
    move_costs: Sequence[int]
    charges: Sequence[int]
    instances: Sequence[InstanceId | None]
    offerings: Sequence[int]
    prices: Sequence[int]
    loads: Sequence[Load]
    staying: Sequence[Load]
    limits: Mapping[int, int]
    total: int


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A configuration that a search ended with.

    Attributes:
        total: Its cost.
        places: The instance of each task run. Instances beyond those of the start are new.
        loads: The load of each instance that is live or holds a task, in the search's order.
        tried: How often something was taken apart.
        kept: How often that was an improvement.
    """

    total: int
    places: Sequence[int]
    loads: Mapping[int, Load]
    tried: int = 0
    kept: int = 0


def search_start(
    problem: Problem,
    cache: LoadCache,
    start: Configuration,
    latest: Mapping[RunId, Millis] | None = None,
    ends: Mapping[RunId, int] | None = None,
) -> SearchStart:
    """Number a configuration, and work out its cost.

    Args:
        problem: The packing problem of the snapshot.
        cache: Source of loads' prices.
        start: The configuration.
        latest: Time of each task run's last move.
        ends: See `SearchStart`.
    """
    ids = list(start.places)
    in_problem = [problem.class_of[id_] for id_ in ids]
    numbers = {number: cache.number(problem.classes[number]) for number in set(in_problem)}
    classes = [numbers[number] for number in in_problem]
    offerings = problem.sold
    slots: dict[Host, int] = {id_: slot for slot, id_ in enumerate(offerings)}
    slots.update((launch.key, len(offerings) + n) for n, launch in enumerate(start.launches))
    places = [slots[host] for host in start.places.values()]
    moves = MoveCosts(problem, cache.terms, latest)
    homes = [slots[moves.home[id_]] if id_ in moves.home else NOWHERE for id_ in ids]
    groups, move_costs, charges = _groups(problem, ids, in_problem, moves)
    bound, pinned = _bound(problem, ids), problem.placed.pinned
    movable = [id_ not in pinned and run not in bound for run, id_ in enumerate(ids)]
    new = [cache.empty[launch.offering.type.family] for launch in start.launches]
    empty = [cache.empty[offering.type.family] for offering in offerings.values()] + new
    held: list[list[int]] = [[] for _ in empty]
    stays: list[list[int]] = [[] for _ in empty]
    for number, slot, leaves in zip(classes, places, movable, strict=True):
        held[slot].append(number)
        if not leaves:
            stays[slot].append(number)
    loads = [cache.load(nothing, tasks) for nothing, tasks in zip(empty, held, strict=True)]
    by_run = ends or {}
    numbered = SearchStart(
        ids,
        classes,
        groups,
        homes,
        places,
        movable,
        [cache.minimum_shares[number] for number in classes],
        {run: by_run[id_] for run, id_ in enumerate(ids) if id_ in by_run},
        move_costs,
        charges,
        [*offerings, *(None for _ in new)],
        [*map(cache.number_of.__getitem__, problem.sold_as.values()), *(NEW for _ in new)],
        [*(offering.price * MILLION for offering in offerings.values()), *(0 for _ in new)],
        loads,
        [cache.load(nothing, tasks) for nothing, tasks in zip(empty, stays, strict=True)],
        _limits(problem, cache),
        0,
    )
    return replace(numbered, total=_total(cache, numbered))


def _groups(
    problem: Problem, ids: Sequence[RunId], in_problem: Sequence[int], moves: MoveCosts
) -> tuple[list[int], list[int], list[int]]:
    """Number what moves together; the cost of moving each group and the charge of each gang."""
    charge_of = [each.charge if each.charge > each.price else 0 for each in problem.classes]
    names: Sequence[str] = [moves.gang_of.get(id_, id_) for id_ in ids] if moves.gang_of else ids
    first = dict(zip(reversed(names), reversed(in_problem), strict=True))
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    groups = [numbers[name] for name in names]
    costs = [moves.cost.get(name, 0) for name in numbers]
    return groups, costs, [charge_of[first[name]] for name in numbers]


def _bound(problem: Problem, ids: Sequence[RunId]) -> set[int]:
    """Members of gangs of which another one has no place: they move together or not at all."""
    placed = set(ids) if problem.gangs else set()
    parted = {job.id for job in problem.gangs if not placed.issuperset(job.runs)}
    runs = enumerate(ids if parted else ())
    return {run for run, id_ in runs if problem.runs[id_].job in parted}


def _limits(problem: Problem, cache: LoadCache) -> dict[int, int]:
    """How many more instances of each limited offering may be launched, by its number.

    Instances are launched before others are freed: all live ones count.
    """
    live = Counter(problem.sold_as.values())
    return {
        number: max(0, more)
        for number, offering in enumerate(cache.offerings)
        if (more := more_of(offering, live)) is not None
    }


def _total(cache: LoadCache, start: SearchStart) -> int:
    total = sum(cache.lost(load) for load in start.loads)
    for offering, price, load in zip(start.offerings, start.prices, start.loads, strict=True):
        total += (load.new_cost if offering == NEW else price) if load.classes else 0
    slowest: dict[int, int] = {}
    away: set[int] = set()
    for run, (group, place) in enumerate(zip(start.groups, start.places, strict=True)):
        if start.charges[group]:
            progress = start.loads[place].progress[start.classes[run]]
            slowest[group] = min(slowest.get(group, MILLION), progress)
        if start.homes[run] not in (NOWHERE, place):
            away.add(group)
    total += sum(gang_loss(start.charges[group], ppm) for group, ppm in slowest.items())
    return total + sum(start.move_costs[group] for group in away)


def begun(start: SearchStart) -> SearchResult:
    """The configuration of a start, unchanged."""
    return SearchResult(start.total, start.places, dict(enumerate(start.loads)))


def is_new(start: SearchStart, slot: int) -> bool:
    """Whether an instance of a result is to be launched."""
    return slot >= len(start.offerings) or start.offerings[slot] == NEW


def runs_on(result: SearchResult) -> Mapping[int, Sequence[int]]:
    """Task runs on each instance that holds any."""
    held: dict[int, list[int]] = {}
    for run, slot in enumerate(result.places):
        held.setdefault(slot, []).append(run)
    return held


def within_limits(cache: LoadCache, start: SearchStart, result: SearchResult) -> bool:
    """Whether no offering is beyond its limit, and no launch too late for all of its tasks."""
    held = runs_on(result) if start.ends else {}
    first_new = len(start.offerings) - start.offerings.count(NEW)  # new ones come last
    launches = (
        (load, held.get(slot, ()))
        for slot, load in result.loads.items()
        if slot >= first_new and load.classes
    )
    return may_launch(cache, start, launches)


def may_launch(
    cache: LoadCache, start: SearchStart, launches: Iterable[tuple[Load, Sequence[int]]]
) -> bool:
    """Whether all of some new instances may be launched, none too late for all of its tasks.

    Args:
        cache: Source of loads' prices.
        start: The begin of the search.
        launches: The load of each new instance, and its task runs; those that may leave suffice.
    """
    remaining = dict(start.limits)
    for load, runs in launches:
        boot_ms = cache.offerings[load.cheapest].type.boot_ms
        late = (start.movable[run] and start.ends.get(run, boot_ms) < boot_ms for run in runs)
        if start.ends and len(runs) == len(load.classes) and all(late):
            return False
        if load.cheapest in remaining:
            remaining[load.cheapest] -= 1
            if remaining[load.cheapest] < 0:
                return False
    return True


def configuration(
    problem: Problem,
    cache: LoadCache,
    begun: Configuration,
    start: SearchStart,
    result: SearchResult,
) -> Configuration:
    """The configuration of a search in its usual form.

    Args:
        problem: The packing problem of the snapshot.
        cache: Source of loads' prices.
        begun: The configuration that the search began with.
        start: Its numbers.
        result: The end of the search.
    """
    launches: list[NewInstance] = []
    hosts: dict[int, Host] = {}
    places: dict[RunId, Host] = {}
    live = len(problem.instances)
    for id_, slot, before in zip(start.ids, result.places, start.places, strict=True):
        if slot == before < live:
            continue
        host = hosts.get(slot)
        if host is None:
            instance = start.instances[slot] if slot < live else None
            host = hosts[slot] = len(launches) if instance is None else instance
            if isinstance(host, int):
                offering = cache.offerings[result.loads[slot].cheapest]
                launches.append(NewInstance(host, offering))
        places[id_] = host
    return rearranged(problem, begun, places, tuple(launches), begun.unplaced)
