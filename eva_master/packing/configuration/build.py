"""A configuration of the cluster: which task run is on which instance, live or new."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass
from functools import partial

from eva_master.model.planning.plan import NewInstance
from eva_master.model.planning.snapshot import RunView
from eva_master.packing.between_places import between_places
from eva_master.packing.configuration.matching import Reusable, match
from eva_master.packing.configuration.move_costs import move_costs
from eva_master.packing.configuration.unplaced_reason import why_unplaced
from eva_master.packing.greedy.algorithm1 import PackedSet, Supply, pack
from eva_master.packing.greedy.backfill import backfill
from eva_master.packing.incremental.present import TaskSet
from eva_master.packing.interference.throughput import Ints
from eva_master.packing.precedence import precedence
from eva_master.packing.problem import Problem
from eva_master.packing.room import more_of
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import MILLION, InstanceId, OfferingId, RunId

Host = InstanceId | int
"""A live instance, or a new one by its key."""

Packer = Callable[[Ints, Supply], tuple[list[PackedSet], Ints]]
"""Chooses instances for tasks; see `algorithm1.pack`, without the problem."""

_BATCHES_OF_BROKEN_GANGS = 16
"""How often broken gangs are taken out one batch at a time, before all of them are."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """Where everything is to be.

    Attributes:
        places: Of every task run that has a place, those that stay included.
        task_sets: Of every instance that holds a task.
        launches: The new instances among them.
        unplaced: Task runs that were to be placed and have no place, with the reason.
    """

    places: Mapping[RunId, Host]
    task_sets: Mapping[Host, TaskSet]
    launches: tuple[NewInstance, ...]
    unplaced: Mapping[RunId, str]


def waiting(problem: Problem) -> list[RunView]:
    """Task runs without a place on a live instance that may be given one."""
    instances, pinned = problem.placed.instances, problem.placed.pinned
    return [
        run
        for name, run in problem.runs.items()
        if instances[name] not in problem.instances and name not in pinned
    ]


def configure(
    problem: Problem, movable: Iterable[RunView], packer: Packer | None = None
) -> Configuration:
    """Place task runs anew; all others stay where they are.

    Room on instances that keep a task is offered first, then instances are bought, and these are
    matched to live ones that keep none. A gang that finds no room for one of its members gets no
    new place for any of them, nor does one with a pinned member that has none.

    Args:
        problem: The snapshot's.
        movable: The task runs to be placed, none of them pinned.
        packer: Chooses what to buy; Algorithm 1 if not given.
    """
    buy = packer or partial(pack, problem)
    runs = sorted(movable, key=lambda run: _urgency(problem, run))
    if not runs:
        task_sets: dict[Host, TaskSet] = {}
        task_sets.update(problem.standing.task_sets.items())
        return Configuration(problem.standing.places, task_sets, (), {})
    between = between_places(problem.snapshot, problem.instances)
    held: set[str] = {*between}
    for attempt in itertools.count():
        configuration = _place(problem, [run for run in runs if run.job not in held], buy)
        broken = (
            _incomplete(problem, runs, configuration, whole=attempt >= _BATCHES_OF_BROKEN_GANGS)
            - held
        )
        if not broken:
            break
        held |= broken
    reasons = _reasons(problem, runs, configuration, held, between)
    return Configuration(
        configuration.places, configuration.task_sets, configuration.launches, reasons
    )


@dataclass(frozen=True, slots=True)
class Sums:
    """Totals of a configuration, over all instances that hold a task.

    Attributes:
        savings: S (Eva, section 4.5): TNRP less price, in millionths of micro-dollars per hour.
        lost: The value of the throughput lost to neighbours and slow families, in the unit of
            `savings`.
        price: Prices of the instances, in micro-dollars per hour.
    """

    savings: int
    lost: int
    price: int


@dataclass(frozen=True, slots=True)
class Totalled:
    """A configuration with its totals.

    Attributes:
        sold_as: Offering of each of its live instances.
    """

    configuration: Configuration
    sums: Sums
    sold_as: Mapping[InstanceId, OfferingId]


NO_TOTALS = Totalled(Configuration({}, {}, (), {}), Sums(0, 0, 0), {})


def present_sums(problem: Problem, present: Configuration) -> Sums:
    """The totals of the present configuration, by what has changed since the last round.

    Args:
        problem: The snapshot's.
        present: Where everything is now.
    """
    key = problem.valuation, problem.classes, problem.throughput, problem.offerings
    last = problem.cache.remembered("sums", key, list[Totalled], limit=1)
    whole = sums(problem, present, *last)
    last[:] = [Totalled(present, whole, problem.sold_as)]
    return whole


def sums(problem: Problem, configuration: Configuration, known: Totalled = NO_TOTALS) -> Sums:
    """Work out what a configuration comes to; equal instances are looked at once.

    Args:
        problem: The snapshot's.
        configuration: The configuration.
        known: Another one: only instances that differ are looked at.
    """
    before, whole = known.configuration, known.sums
    alike: dict[tuple[OfferingId, tuple[tuple[int, int], ...]], int] = {}
    for sign, counted, other, sold_as in (
        (1, configuration, before, problem.sold_as),
        (-1, before, configuration, known.sold_as),
    ):
        new = {launch.key: launch.offering.id for launch in counted.launches}
        for host, task_set in counted.task_sets.items():
            if isinstance(host, int):
                offering = new[host]
            elif other.task_sets.get(host) is task_set:
                continue
            else:
                offering = sold_as[host]
            # Equal sets in another order are looked at again, which costs less than to sort all.
            key = offering, tuple(task_set.items())
            alike[key] = alike.get(key, 0) + sign
    savings, lost, price = whole.savings, whole.lost, whole.price
    for (name, tasks), number in alike.items():
        sold, task_set = problem.by_id[name], dict(tasks)
        value = problem.value(task_set, sold.type.family)
        savings += number * (value - MILLION * sold.price)
        lost += number * problem.lost(task_set, sold.type.family)
        price += number * sold.price
    return Sums(savings, lost, price)


def rearranged(
    problem: Problem,
    before: Configuration,
    places: Mapping[RunId, Host],
    launches: tuple[NewInstance, ...],
    unplaced: Mapping[RunId, str],
) -> Configuration:
    """A configuration in which some task runs are elsewhere; it shares the sets of the others.

    Args:
        problem: The snapshot's.
        before: A configuration that has a place for all of them.
        places: The new places, those of all task runs on new instances included.
        launches: The new instances.
        unplaced: Task runs without a place, with the reason.
    """
    changes: dict[Host, Counter[int]] = {}
    for run, host in places.items():
        number, earlier = problem.class_of[run], before.places[run]
        if not isinstance(earlier, int):  # keys of new instances mean other ones before
            changes.setdefault(earlier, Counter())[number] -= 1
        changes.setdefault(host, Counter())[number] += 1
    sets: dict[Host, TaskSet] = {
        host: task_set for host, task_set in before.task_sets.items() if not isinstance(host, int)
    }
    for host, change in changes.items():
        change.update(sets.pop(host, {}))
        if held := +change:
            sets[host] = held
    return Configuration({**before.places, **places}, sets, launches, unplaced)


def _urgency(problem: Problem, run: RunView) -> tuple[object, ...]:
    """Sort key among tasks of one class: those that have a place first, then the most urgent."""
    job = problem.jobs[run.job]
    placed = run.instance in problem.instances
    return not run.running, not placed, precedence(job), run.id


def _place(problem: Problem, runs: list[RunView], buy: Packer) -> Configuration:
    """Place task runs, gangs or not; `runs` in order of urgency."""
    places: dict[RunId, Host] = dict(problem.standing.places)
    staying: dict[InstanceId, TaskSet] = dict(problem.standing.task_sets)
    for run in runs:
        instance = places.pop(run.id, None)
        if isinstance(instance, str):
            left_there = {**staying[instance]}
            number = problem.class_of[run.id]
            left_there[number] -= 1
            if not left_there[number]:
                del left_there[number]
            staying[instance] = left_there
            if not left_there:
                del staying[instance]
    cost = move_costs(problem, runs)
    joined, rest = backfill(problem, staying, problem.counts(run.id for run in runs))
    sets, _ = buy(rest, supply(problem, staying))
    slots: dict[Host, TaskSet] = {}
    slots.update(joined.items())
    launches: list[NewInstance] = []
    for wanted, host in match(sets, _reusable(problem, staying, runs, cost)):
        if isinstance(host, PackedSet):
            launches.append(NewInstance(len(launches), host.offering))
            slots[launches[-1].key] = wanted
        else:
            slots[host] = wanted
    places.update(_assign(problem, slots, runs, cost))
    total: dict[Host, TaskSet] = {**slots}
    for instance, task_set in staying.items():
        extra = joined.get(instance)
        total[instance] = Counter(task_set) + Counter(extra) if extra else task_set
    return Configuration(places, total, tuple(launches), {})


def supply(problem: Problem, staying: Mapping[InstanceId, TaskSet]) -> dict[OfferingId, int | None]:
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
        reusable, more = live[name], more_of(offering, kept)
        if not problem.buyable(name):
            available[name] = reusable
        else:
            available[name] = None if more is None else max(more, reusable)
    return available


def _reusable(
    problem: Problem,
    staying: Mapping[InstanceId, TaskSet],
    runs: Iterable[RunView],
    cost: Mapping[RunId, int],
) -> list[Reusable]:
    residents: dict[InstanceId, dict[int, list[int]]] = {}
    for run in runs:
        if run.instance is not None:
            each = residents.setdefault(run.instance, {})
            each.setdefault(problem.class_of[run.id], []).append(cost.get(run.id, 0))
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
    slots: Mapping[Host, TaskSet],
    runs: list[RunView],
    cost: Mapping[RunId, int],
) -> dict[RunId, Host]:
    """Choose who fills the slots: task runs that are there already, then the others in order."""
    pools: dict[int, list[RunId]] = {}
    here: dict[tuple[Host | None, int], list[RunId]] = {}
    for run in runs:
        number = problem.class_of[run.id]
        pools.setdefault(number, []).append(run.id)
        here.setdefault((run.instance, number), []).append(run.id)
    filled: Counter[int] = Counter()
    for task_set in slots.values():
        filled.update(task_set)
    places: dict[RunId, Host] = {}
    vacant: dict[int, list[Host]] = {}
    for host, task_set in slots.items():
        for number, count in task_set.items():
            stayers = here.get((host, number), [])
            if filled[number] == len(pools[number]):
                # No one is left out: those stay whose move would cost most.
                stayers = sorted(stayers, key=lambda run: -cost.get(run, 0))
            stayers = stayers[:count]
            places.update(dict.fromkeys(stayers, host))
            vacant.setdefault(number, []).extend([host] * (count - len(stayers)))
    for number, hosts_ in vacant.items():
        movers = (run for run in pools[number] if run not in places)
        # There may be more movers than room.
        places.update(zip(movers, hosts_, strict=False))
    return places


def _incomplete(
    problem: Problem, runs: list[RunView], configuration: Configuration, *, whole: bool
) -> set[str]:
    """Gangs of which some members found a place and others did not.

    Args:
        problem: The packing problem of the snapshot.
        runs: The task runs that were to be placed.
        configuration: The places found.
        whole: Whether to include gangs of which no member found a place.
    """
    without = {run.job for run in runs if run.id not in configuration.places}
    placed = {run.job for run in runs if run.id in configuration.places}
    return {
        job
        for job in without
        if problem.jobs[job].spec.kind is JobKind.GANG and (whole or job in placed)
    }


def _reasons(
    problem: Problem,
    runs: list[RunView],
    configuration: Configuration,
    held: set[str],
    between: Set[str],
) -> dict[RunId, str]:
    """Why task runs have no place; one that could be placed waits for others of its gang."""
    snapshot = problem.snapshot
    reasons = {
        run.id: why_unplaced(run.task.demand, snapshot.catalog, snapshot.now_ms)
        for run in runs
        if run.id not in configuration.places
    }
    stuck: dict[str, str] = {}
    for run in runs:
        if why := reasons.get(run.id):
            stuck.setdefault(run.job, why)
    for run in runs:
        if run.job in between and run.id in reasons:
            reasons[run.id] = "another task of its gang is between places"
        elif run.job in held and run.id in reasons:
            reasons[run.id] = f"its gang does not fit as a whole: {stuck.get(run.job, '')}"
    return reasons
