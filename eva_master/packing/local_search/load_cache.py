"""Costs of task sets on instances of a family, remembered while prices are the same."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import le
from typing import NamedTuple

from eva_master.model.planning.snapshot import ThroughputTable
from eva_master.model.resources import NOTHING
from eva_master.packing.incremental.view import changes
from eva_master.packing.interference.throughput import UNPROFILED
from eva_master.packing.local_search.cost_model import CostWeights
from eva_master.packing.problem import Problem
from eva_master.packing.room import may_buy_one
from eva_master.packing.round_work import WorkBudget, WorkKind
from eva_master.packing.valuation.migration_cost import launch_cost
from eva_master.packing.valuation.task_classes import UNKNOWN, TaskClass
from eva_master.packing.valuation.vectors import Vector, vector
from eva_wire.values.ids import MILLION, Family, OfferingId, Workload

NEVER = 1 << 120
"""A cost above every other one, for instances that cannot be bought."""
_LOADS_REMEMBERED = 200_000
"""A cache with more loads than this is replaced by a new one."""


class _Parts(NamedTuple):
    """Sums over the tasks of a load that make up its loss; a further task changes few of them.

    Attributes:
        to_family: Loss of its tasks to a slow family, without gangs.
        shared: Number of tasks of each workload and their value on the family, without gangs.
        members: Numbers of the classes that are in gangs, each once.
    """

    to_family: int
    shared: Mapping[int, tuple[int, int]]
    members: tuple[int, ...]


_NO_PARTS = _Parts(0, {}, ())


class ClassFigures(NamedTuple):
    """A task of some class on some family.

    Attributes:
        workload: Number of its workload in the cache.
        to_family: Its loss to a slow family; 0 in a gang, like `worth`.
        worth: Its value on the family.
        speed: Speed of its gang if this is the slowest member, in millionths; -1 outside gangs.
    """

    workload: int
    to_family: int
    worth: int
    speed: int


class Load:
    """A set of tasks on one instance of a family, with its cost there.

    Loads are interned and linked: each refers to those with one task more, or less.

    Attributes:
        classes: Numbers of the tasks' classes in the cache, sorted.
        need: Of all its tasks.
        fits: A bit per offering that holds it.
        lost: Weighted loss of its tasks to each other and to a slow family, without gangs. -1 until
            first computed, see `LoadCache.lost`.
        progress: Progress of gangs' members, by class; empty if there are none. See
            `CostWeights.counted`.
        new_cost: The least cost of a new instance for it, launch included.
        cheapest: The number of that instance's offering.
        after: The load with one task more, by that task's class.
        before: The load with one task less, by that task's class.
        parts: The terms of `lost`; `None` until then.
        round: The cache's round in which it was met last.
    """

    __slots__ = (
        *("after", "before", "cheapest", "classes", "fits", "lost", "need", "new_cost", "parts"),
        *("progress", "round"),
    )

    def __init__(self, classes: tuple[int, ...], need: Vector) -> None:
        self.classes = classes
        self.need = need
        self.fits = 0
        self.lost = -1
        self.progress: dict[int, int] = {}
        self.new_cost = NEVER
        self.cheapest = -1
        self.after: dict[int, Load] = {}
        self.before: dict[int, Load] = {}
        self.parts: _Parts | None = None
        self.round = 0


@dataclass(frozen=True, slots=True)
class SizedOffering:
    """An offering as the cache knows it."""

    number: int
    bit: int
    capacity: Vector
    new_cost: int


class LoadCache:
    """Prices sets of tasks, and remembers them while prices are the same.

    A cache outlives the problem that it was made of: its numbers of classes and offerings are its
    own. Its answers depend on the question alone, not on earlier questions.

    Args:
        problem: The first problem that it serves.
        terms: Weights of the costs.

    Attributes:
        terms: Weights of the costs.
        offerings: By number; cheapest first.
        number_of: The number of each offering, by id.
        launch_costs: Cost of launching each offering, by number.
        new_costs: Launch cost plus price of each offering, by number.
        round: The number of this round, see `begin`.
        budget: Work that the round may still spend on new loads.
        met: Number of loads met in the round.
        buyable: Offerings that can be bought: cost of a new instance with its launch, and the
            number.
        empty: The load of an empty instance, by family.
        table: Observed throughput.
        throughput: The throughput of loads by that table.
        minimum_shares: By class, the least cost of a task if others fill the rest of the instance.
        most_lost: By class, the most that a task can lose beside what its gang does.
    """

    def __init__(self, problem: Problem, terms: CostWeights) -> None:
        self.terms = terms
        self.round = 0
        self.budget = WorkBudget()
        self.met = 0
        self._made_for = _made_for(problem, terms)
        self.offerings = problem.offerings
        self.number_of = {offering.id: number for number, offering in enumerate(self.offerings)}
        self.launch_costs = [terms.per_hour(launch_cost(offering)) for offering in self.offerings]
        self.new_costs = [
            offering.price * MILLION + launch
            for offering, launch in zip(self.offerings, self.launch_costs, strict=True)
        ]
        self._numbers: dict[TaskClass, int] = {}
        self._classes: list[TaskClass] = []
        self._figures: list[dict[Family, ClassFigures]] = []
        # Workloads have numbers of their own, that stay, beside those of the throughput model.
        self._workloads: dict[Workload, int] = {}
        self._in_model: list[int] = []
        self._holding: list[set[Load]] = []
        self._alike: dict[tuple[int, ...], list[Load]] = {}
        """Loads of more than two tasks by the numbers of all of their workloads."""
        self._labels = frozenset({UNKNOWN, UNPROFILED})
        self.table = ThroughputTable()
        self._follow(problem)
        self._needs: list[dict[Family, Vector]] = []
        self.minimum_shares: list[int] = []
        self.most_lost: list[int] = []
        self._loads: dict[tuple[Family, tuple[int, ...]], Load] = {}
        self._families: dict[Load, Family] = {}
        self._sized: dict[Family, list[SizedOffering]] = {}
        on_sale = _on_sale(problem)
        for number, offering in enumerate(self.offerings):
            new_cost = self.new_costs[number] if offering.id in on_sale else NEVER
            sized = SizedOffering(number, 1 << number, vector(offering.type.capacity), new_cost)
            self._sized.setdefault(offering.type.family, []).append(sized)
        self.buyable = sorted(
            (sized.new_cost, sized.number)
            for every in self._sized.values()
            for sized in every
            if sized.new_cost < NEVER
        )
        self.empty: dict[Family, Load] = {}
        for family in sorted(self._sized):
            load = self._interned(family, ())
            load.fits, load.new_cost, load.lost = (1 << len(self.offerings)) - 1, 0, 0
            load.parts = _NO_PARTS
            self.empty[family] = load

    def serves(self, problem: Problem, terms: CostWeights) -> bool:
        """Take up another problem; returns whether the cache can be asked about it."""
        if len(self._loads) > _LOADS_REMEMBERED or self._made_for != _made_for(problem, terms):
            return False
        if self.table != problem.table or any(
            task_class.workload not in self._labels for task_class in problem.classes
        ):
            self._follow(problem)
        return True

    def begin(self, budget: WorkBudget) -> None:
        """Begin a round: each load that is met in it counts once, remembered or not."""
        self.round += 1
        self.budget = budget
        self.met = 0

    def meet(self, load: Load, number: int) -> Load | None:
        """The load with one more task of a class, `None` if no more may be met in this round."""
        larger = load.after.get(number)
        if larger is None:
            # The load may have been met by another way.
            larger = self._loads.get((self._families[load], _with(load.classes, number)))
        if larger is None or larger.round != self.round:
            if not self.budget.left:
                return None
            self.budget.spend(WorkKind.LOAD)
            self.met += 1
            larger = self.more(load, number)
            larger.round = self.round
        return larger

    def _follow(self, problem: Problem) -> None:
        """Go by a problem's table; forget the losses that its changes may have changed."""
        gone, new = changes(self.table.observed, problem.table.observed)
        self.table = problem.table
        for names in {tuple(sorted((workload, *others))) for (workload, others), _ in gone + new}:
            self._forget(names)
        labels = self._labels.union(
            (task_class.workload for task_class in problem.classes),
            *((workload, *others) for (workload, others), _ in new),
        )
        self.throughput = problem.cache.throughput(problem.table, labels, problem.default_ppm)
        if labels != self._labels:
            index, self._labels = self.throughput.index, labels
            self._in_model = [index[name] for name in self._workloads]

    def _forget(self, names: tuple[Workload, ...]) -> None:
        """Forget losses that are worked out from an observation: of the whole set, or of a pair."""
        if not self._workloads.keys() >= set(names):
            return
        numbers = tuple(sorted(self._workloads[name] for name in names))
        for load in (
            self._holding_pair(*numbers) if len(names) == 2 else self._alike.get(numbers, ())
        ):
            if load.lost >= 0:
                load.lost, load.progress = -1, {}

    def family(self, load: Load) -> Family:
        """The family that a load is of."""
        return self._families[load]

    def empty_of(self, load: Load) -> Load:
        """The load of an empty instance of a load's family."""
        return self.empty[self._families[load]]

    def sized(self, family: Family) -> Sequence[SizedOffering]:
        """The offerings of a family, by number."""
        return self._sized[family]

    @property
    def classes(self) -> Sequence[TaskClass]:
        """The classes that have numbers, in their order."""
        return self._classes

    def need(self, family: Family, number: int) -> Vector | None:
        """The demand of a class on a family; `None` if it cannot be there."""
        return self._needs[number].get(family)

    def _holding_pair(self, first: int, second: int) -> Iterable[Load]:
        """Loads with tasks of two workloads, or with two of one."""
        if first != second:
            fewer, more = sorted((self._holding[first], self._holding[second]), key=len)
            return fewer & more
        return [load for load in self._holding[first] if _tasks(load, first) > 1]

    def number(self, task_class: TaskClass) -> int:
        """The number of a class in this cache."""
        number = self._numbers.get(task_class)
        if number is None:
            number = self._numbers[task_class] = len(self._classes)
            self._classes.append(task_class)
            self._figures.append({})
            name = task_class.workload
            if name not in self._workloads:
                self._workloads[name] = len(self._workloads)
                self._in_model.append(self.throughput.index[name])
                self._holding.append(set())
            self._needs.append({family: vector(need) for family, need in task_class.demand})
            self.minimum_shares.append(self._minimum_share(task_class) * MILLION)
            alone = max(task_class.most, task_class.charge)
            self.most_lost.append(0 if task_class.others else alone)
        return number

    def _minimum_share(self, task_class: TaskClass) -> int:
        """The least share of an instance's price that a task must take up."""
        least = task_class.price
        for family, need in task_class.demand:
            wanted = vector(need)
            for sized in self._sized.get(family, ()):
                if sized.new_cost < NEVER and all(map(le, wanted, sized.capacity)):
                    price = self.offerings[sized.number].price
                    parts = zip(wanted, sized.capacity, strict=True)
                    share = max((price * part // size for part, size in parts if part), default=0)
                    least = min(least, share)
        return least

    def load(self, empty: Load, classes: Iterable[int]) -> Load:
        """The load of tasks of some classes, in the family that a load is of."""
        numbers = tuple(sorted(classes))
        return self._interned(self._families[empty], numbers) if numbers else empty

    def more(self, load: Load, number: int) -> Load:
        """The load with one more task of a class."""
        larger = load.after.get(number)
        if larger is None:
            family, classes = self._families[load], _with(load.classes, number)
            larger = self._loads.get((family, classes))
            if larger is None:
                need = self._needs[number].get(family)
                if need is None or not load.fits:
                    needs = None
                else:
                    (gpus, cpus, memory, disk), more = load.need, need
                    needs = gpus + more[0], cpus + more[1], memory + more[2], disk + more[3]
                larger = self._remember(family, self._sized_load(family, classes, needs))
            load.after[number] = larger
            larger.before[number] = load
        return larger

    def less(self, load: Load, number: int) -> Load:
        """The load with one task less of a class."""
        smaller = load.before.get(number)
        if smaller is None:
            classes = list(load.classes)
            classes.remove(number)
            smaller = self._interned(self._families[load], tuple(classes))
            load.before[number] = smaller
            smaller.after[number] = load
        return smaller

    def _interned(self, family: Family, classes: tuple[int, ...]) -> Load:
        load = self._loads.get((family, classes))
        if load is None:
            needs = self._need(family, classes)
            load = self._remember(family, self._sized_load(family, classes, needs))
        return load

    def _remember(self, family: Family, load: Load) -> Load:
        self._loads[family, load.classes] = load
        self._families[load] = family
        return load

    def _need(self, family: Family, classes: tuple[int, ...]) -> Vector | None:
        """Demand of all tasks of a set; `None` if one cannot be on the family."""
        gpus = cpus = memory = disk = 0
        for number in classes:
            need = self._needs[number].get(family)
            if need is None:
                return None
            gpus, cpus, memory = gpus + need[0], cpus + need[1], memory + need[2]
            disk += need[3]
        return gpus, cpus, memory, disk

    def _sized_load(self, family: Family, classes: tuple[int, ...], need: Vector | None) -> Load:
        """Find out which offerings hold a set, and the cheapest that can be bought."""
        if need is None:
            return Load(classes, vector(NOTHING))
        gpus, cpus, memory, disk = need
        load = Load(classes, need)
        for sized in self._sized[family]:
            size = sized.capacity
            fits = gpus <= size[0] and cpus <= size[1] and memory <= size[2]
            if fits and disk <= size[3]:
                load.fits |= sized.bit
                if sized.new_cost < load.new_cost:
                    load.new_cost, load.cheapest = sized.new_cost, sized.number
        return load

    def lost(self, load: Load) -> int:
        """Work out what the tasks of a load lose to each other and to a slow family."""
        if load.lost >= 0:
            return load.lost
        parts = load.parts
        if parts is None:
            parts = load.parts = self._summed(load)
            for number in parts.shared:
                self._holding[number].add(load)
            if len(load.classes) > 2:
                alike = (
                    number for number, (count, _) in parts.shared.items() for _ in range(count)
                )
                self._alike.setdefault(tuple(sorted(alike)), []).append(load)
        in_model, to_neighbours = self._in_model, 0
        tasks = sorted([(in_model[n], count) for n, (count, _) in parts.shared.items()])
        throughput = self.throughput.by_workload(tuple(tasks))
        for number, (_, worth) in parts.shared.items():
            to_neighbours += worth * (MILLION - throughput[in_model[number]])
        family = self._families[load]
        for number in parts.members:
            # A slow family holds up the whole gang, as neighbours do.
            figures = self.figures_on(family, number)
            ppm = throughput[in_model[figures.workload]]
            load.progress[number] = self.terms.counted(figures.speed, ppm)
        load.lost = parts.to_family * MILLION + to_neighbours * self.terms.lost_ppm // MILLION
        return load.lost

    def _summed(self, load: Load) -> _Parts:
        """The sums of a load, built from a load with one task less if its sums exist."""
        family = self._families[load]
        for number, before in load.before.items():
            if before.parts is not None:
                return _joined(before.parts, number, self.figures_on(family, number))
        parts = _NO_PARTS
        for number in load.classes:
            parts = _joined(parts, number, self.figures_on(family, number))
        return parts

    def figures_on(self, family: Family, number: int) -> ClassFigures:
        """A class on a family."""
        figures = self._figures[number].get(family)
        if figures is None:
            task_class = self._classes[number]
            workload = self._workloads[task_class.workload]
            if task_class.others:
                speed = task_class.charge_on(family) * MILLION // task_class.charge
                figures = ClassFigures(workload, 0, 0, speed)
            else:
                price = task_class.price_on(family) if task_class.prices else task_class.price
                figures = ClassFigures(workload, task_class.most - price, price, -1)
            self._figures[number][family] = figures
        return figures


def _tasks(load: Load, workload: int) -> int:
    """How many tasks of a workload a load has, whose sums are known."""
    assert load.parts is not None
    return load.parts.shared[workload][0]


def _with(classes: tuple[int, ...], number: int) -> tuple[int, ...]:
    """Sorted numbers of classes with one more."""
    place = bisect_left(classes, number)
    return (*classes[:place], number, *classes[place:])


def _joined(parts: _Parts, number: int, figures: ClassFigures) -> _Parts:
    """Parts with those of one more task of a class."""
    workload, to_family, worth, speed = figures
    shared = dict(parts.shared)
    tasks, together = shared.get(workload, (0, 0))
    shared[workload] = tasks + 1, together + worth
    members = parts.members
    if speed >= 0 and number not in members:
        members = (*members, number)
    return _Parts(parts.to_family + to_family, shared, members)


def _made_for(problem: Problem, terms: CostWeights) -> tuple[object, ...]:
    """Key of everything that must not change for a cache to be kept."""
    return terms, problem.default_ppm, problem.offerings, _on_sale(problem)


def _on_sale(problem: Problem) -> frozenset[OfferingId]:
    """Offerings of which one more may be launched now: all live ones count towards a limit."""
    live = Counter(problem.sold_as.values())
    return frozenset(
        offering.id
        for offering in problem.offerings
        if problem.buyable(offering.id) and may_buy_one(offering, live)
    )
