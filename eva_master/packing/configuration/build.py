"""A configuration of the cluster: which copy is on which instance, live or new."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from eva_master.model.ids import MILLION, CopyId, InstanceId, OfferingId
from eva_master.model.job import JobKind
from eva_master.model.planning.plan import NewInstance
from eva_master.model.planning.snapshot import CopyView
from eva_master.packing.configuration.matching import Reusable, match
from eva_master.packing.configuration.unplaced_reason import why_unplaced
from eva_master.packing.greedy.algorithm1 import PackedSet, Supply, pack
from eva_master.packing.greedy.backfill import fill_free
from eva_master.packing.interference.throughput import Ints
from eva_master.packing.problem import Contents, Problem
from eva_master.packing.valuation.migration_cost import stakes

Host = InstanceId | int
"""A live instance, or a new one by its key."""

Packer = Callable[[Ints, Supply], tuple[list[PackedSet], Ints]]
"""Chooses instances for tasks; see `greedy.pack`, without the problem."""

_ATTEMPTS = 16
"""How often broken gangs are taken out one batch at a time, before all of them are."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """Where everything is to be.

    Attributes:
        places: Of every copy that has a place, those that stay included.
        contents: Of every instance that holds a task.
        launches: The new instances among them.
        unplaced: Copies that were to be placed and have no place, with the reason.
    """

    places: Mapping[CopyId, Host]
    contents: Mapping[Host, Contents]
    launches: tuple[NewInstance, ...]
    unplaced: Mapping[CopyId, str]


def waiting(problem: Problem) -> list[CopyView]:
    """Copies without a place on a live instance that may be given one."""
    return [
        copy
        for copy in problem.snapshot.copies
        if not copy.pinned and copy.instance not in problem.instances
    ]


def configure(
    problem: Problem, movable: Iterable[CopyView], packer: Packer | None = None
) -> Configuration:
    """Place copies anew; all others stay where they are.

    Room on instances that keep a task is offered first, then instances are bought, and these are
    matched to live ones that keep none. A gang that finds no room for one of its members gets no
    new place for any of them.

    Args:
        problem: The snapshot's.
        movable: The copies to be placed, none of them pinned.
        packer: Chooses what to buy; Algorithm 1 if not given.
    """
    buy = packer or partial(pack, problem)
    copies = sorted(movable, key=lambda copy: _urgency(problem, copy))
    held: set[str] = set()
    for attempt in itertools.count():
        configuration = _place(problem, [copy for copy in copies if copy.job not in held], buy)
        broken = _incomplete(problem, copies, configuration, whole=attempt >= _ATTEMPTS) - held
        if not broken:
            break
        held |= broken
    reasons = _reasons(problem, copies, configuration, held)
    return Configuration(
        configuration.places, configuration.contents, configuration.launches, reasons
    )


@dataclass(frozen=True, slots=True)
class Sums:
    """What a configuration comes to, over all instances that hold a task.

    Attributes:
        savings: S (Eva, section 4.5): TNRP less price, in millionths of micro-dollars per hour.
        lost: The value of the throughput lost to neighbours and slow families, likewise.
        price: Of the instances, in micro-dollars per hour.
    """

    savings: int
    lost: int
    price: int


def sums(problem: Problem, configuration: Configuration) -> Sums:
    """Work out what a configuration comes to; equal instances are looked at once."""
    new = {launch.key: launch.offering.id for launch in configuration.launches}
    alike: dict[tuple[OfferingId, frozenset[tuple[int, int]]], int] = {}
    for host, contents in configuration.contents.items():
        offering = new[host] if isinstance(host, int) else problem.sold_as[host]
        kind = offering, frozenset(contents.items())
        alike[kind] = alike.get(kind, 0) + 1
    savings = lost = price = 0
    for (name, pattern), number in alike.items():
        sold, contents = problem.by_id[name], dict(pattern)
        value = problem.value(contents, sold.type.family)
        savings += number * (value - MILLION * sold.price)
        lost += number * problem.lost(contents, sold.type.family)
        price += number * sold.price
    return Sums(savings, lost, price)


def _urgency(problem: Problem, copy: CopyView) -> tuple[bool, bool, int, int, str, CopyId]:
    """Who comes first among tasks of one class: those that have a place, then the most urgent."""
    job = problem.jobs[copy.job]
    placed = copy.instance in problem.instances
    return not copy.running, not placed, -job.priority, job.submitted_ms, job.id, copy.id


def _place(problem: Problem, copies: list[CopyView], buy: Packer) -> Configuration:
    """Place copies, gangs or not; `copies` in order of urgency."""
    places: dict[CopyId, Host] = dict(problem.standing.places)
    staying: dict[InstanceId, Contents] = dict(problem.standing.contents)
    for copy in copies:
        instance = places.pop(copy.id, None)
        if isinstance(instance, str):
            left_there = {**staying[instance]}
            number = problem.class_of[copy.id]
            left_there[number] -= 1
            if not left_there[number]:
                del left_there[number]
            staying[instance] = left_there
            if not left_there:
                del staying[instance]
    cost = stakes(problem, copies)
    joined, left = fill_free(problem, staying, problem.counts(copy.id for copy in copies))
    sets, _ = buy(left, supply(problem, staying))
    slots: dict[Host, Contents] = {}
    slots.update(joined.items())
    launches: list[NewInstance] = []
    for wanted, host in match(sets, _reusable(problem, staying, copies, cost)):
        if isinstance(host, PackedSet):
            launches.append(NewInstance(len(launches), host.offering))
            slots[launches[-1].key] = wanted
        else:
            slots[host] = wanted
    places.update(_assign(problem, slots, copies, cost))
    total: dict[Host, Contents] = {**slots}
    for instance, contents in staying.items():
        extra = joined.get(instance)
        total[instance] = Counter(contents) + Counter(extra) if extra else contents
    return Configuration(places, total, tuple(launches), {})


def supply(
    problem: Problem, staying: Mapping[InstanceId, Contents]
) -> dict[OfferingId, int | None]:
    """How many instances of each offering may be used besides those that stay.

    Live instances may always be used again, even if their offering is out of stock, no longer
    in the catalog, or has more of them than its limit now allows.
    """
    live: Counter[OfferingId] = Counter()
    kept: Counter[OfferingId] = Counter()
    for instance, offering_id in problem.sold_as.items():
        counter = kept if instance in staying else live
        counter[offering_id] += 1
    available: dict[OfferingId, int | None] = {}
    for name, offering in problem.by_id.items():
        reusable, limit = live[name], offering.limit
        if not problem.buyable(name):
            available[name] = reusable
        elif limit is None:
            available[name] = None
        else:
            available[name] = max(limit - kept[name], reusable)
    return available


def _reusable(
    problem: Problem,
    staying: Mapping[InstanceId, Contents],
    copies: Iterable[CopyView],
    cost: Mapping[CopyId, int],
) -> list[Reusable]:
    residents: dict[InstanceId, dict[int, list[int]]] = {}
    for copy in copies:
        if copy.instance is not None:
            each = residents.setdefault(copy.instance, {})
            each.setdefault(problem.class_of[copy.id], []).append(cost.get(copy.id, 0))
    return [
        Reusable(
            instance.id,
            problem.sold_as[instance.id],
            instance.ready,
            {
                number: tuple(sorted(costs, reverse=True))
                for number, costs in residents.get(instance.id, {}).items()
            },
        )
        for instance in problem.snapshot.instances
        if instance.id not in staying
    ]


def _assign(
    problem: Problem,
    slots: Mapping[Host, Contents],
    copies: list[CopyView],
    cost: Mapping[CopyId, int],
) -> dict[CopyId, Host]:
    """Choose who fills the slots: copies that are there already, then the others in order."""
    pools: dict[int, list[CopyId]] = {}
    here: dict[tuple[Host | None, int], list[CopyId]] = {}
    for copy in copies:
        number = problem.class_of[copy.id]
        pools.setdefault(number, []).append(copy.id)
        here.setdefault((copy.instance, number), []).append(copy.id)
    filled: Counter[int] = Counter()
    for contents in slots.values():
        filled.update(contents)
    places: dict[CopyId, Host] = {}
    vacant: dict[int, list[Host]] = {}
    for host, contents in slots.items():
        for number, count in contents.items():
            stayers = here.get((host, number), [])
            if filled[number] == len(pools[number]):
                # No one is left out: those stay whose move would cost most.
                stayers = sorted(stayers, key=lambda copy: -cost.get(copy, 0))
            stayers = stayers[:count]
            places.update(dict.fromkeys(stayers, host))
            vacant.setdefault(number, []).extend([host] * (count - len(stayers)))
    for number, hosts_ in vacant.items():
        movers = (copy for copy in pools[number] if copy not in places)
        # There may be more movers than room.
        places.update(zip(movers, hosts_, strict=False))
    return places


def _incomplete(
    problem: Problem, copies: list[CopyView], configuration: Configuration, *, whole: bool
) -> set[str]:
    """Gangs of which some members found a place and others did not.

    Args:
        problem: The snapshot's.
        copies: What was to be placed.
        configuration: Where it was placed.
        whole: Also gangs of which no member found one.
    """
    without = {copy.job for copy in copies if copy.id not in configuration.places}
    placed = {copy.job for copy in copies if copy.id in configuration.places}
    return {
        job
        for job in without
        if problem.jobs[job].kind is JobKind.GANG and (whole or job in placed)
    }


def _reasons(
    problem: Problem, copies: list[CopyView], configuration: Configuration, held: set[str]
) -> dict[CopyId, str]:
    """Why copies have no place; one that could be placed waits for others of its gang."""
    snapshot = problem.snapshot
    reasons = {
        copy.id: why_unplaced(copy.task.demand, snapshot.catalog, snapshot.now_ms)
        for copy in copies
        if copy.id not in configuration.places
    }
    stuck: dict[str, str] = {}
    for copy in copies:
        if why := reasons.get(copy.id):
            stuck.setdefault(copy.job, why)
    for copy in copies:
        if copy.job in held and copy.id in reasons:
            reasons[copy.id] = f"its gang does not fit as a whole: {stuck.get(copy.job, '')}"
    return reasons
