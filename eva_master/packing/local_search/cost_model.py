"""One figure for a change of the cluster: prices, throughput lost, moves and launches together.

Over a horizon H a configuration costs

    H * (prices + weight * throughput lost) + moves + launches

in dollars. Everything here is divided by H, so it is in millionths of micro-dollars per hour like
all values of packing, and whole: the cost of a configuration is a sum of terms that each depend on
one instance, one gang or one move, rounded down one by one, so that it can be kept up to date term
by term without a drift.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import combinations
from operator import le

from eva_master.model.ids import MILLION, Exact, Family, Millis, RunId, Workload
from eva_master.model.job import JobKind
from eva_master.model.planning.snapshot import ThroughputTable
from eva_master.packing.configuration.build import Configuration, Host
from eva_master.packing.interference.incremental import changes
from eva_master.packing.interference.throughput import UNPROFILED
from eva_master.packing.problem import Problem
from eva_master.packing.valuation.migration_cost import expected_migration_cost, launch_cost
from eva_master.packing.valuation.task_classes import UNKNOWN, TaskClass
from eva_master.packing.valuation.vectors import vector

NEVER = 1 << 120
"""More than anything costs: what cannot be bought."""

_SHORTEST_MS = 1_000
"""Whatever is arranged is expected to last at least so long."""
_LOADS = 200_000
"""Sets that are remembered at most."""


@dataclass(frozen=True, slots=True)
class Terms:
    """What counts how much.

    Attributes:
        horizon_ms: H, over which moves and launches are to pay.
        lost_ppm: Weight of the throughput lost to company, in millionths. Throughput lost to a
            slow family counts in full: the task needs that much longer, at the full price.
        gang_lost_ppm: The same of what gangs lose to company.
        moves_ppm: Weight of the cost of a move, in millionths.
        lasting_ppm: The next move of a task is to pay within this part of the time since its last
            one, in millionths, where that is shorter than the horizon.
    """

    horizon_ms: int = 3_600_000
    lost_ppm: int = 700_000
    gang_lost_ppm: int = 1_000_000
    moves_ppm: int = 500_000
    lasting_ppm: int = 500_000

    def pays_within_ms(self, since_ms: int) -> int:
        """Within which time the next move of a task is to pay.

        Args:
            since_ms: How long ago it was moved last.
        """
        lasting = since_ms * self.lasting_ppm // MILLION
        return min(max(lasting, _SHORTEST_MS), self.horizon_ms)

    def per_hour(self, cost: Exact) -> int:
        """Spread what is paid once over the horizon, in millionths of micro-dollars per hour."""
        return cost * MILLION // self.horizon_ms

    def counted(self, speed_ppm: int, company_ppm: int) -> int:
        """How far a gang's member counts as getting on, in millionths.

        Args:
            speed_ppm: Its speed on its family against what the gang can use; counts in full.
            company_ppm: What it achieves of that beside its neighbours; the loss counts by
                `gang_lost_ppm`.
        """
        lost = speed_ppm * (MILLION - company_ppm) // MILLION
        return speed_ppm - lost * self.gang_lost_ppm // MILLION


class Load:
    """A set of tasks on one instance of a family, and what it costs there.

    Loads are interned and linked: each knows the one with a task more, or less.

    Attributes:
        key: Numbers of the tasks' classes in the book, sorted.
        need: GPUs, milli-CPUs, MiB.
        fits: A bit per offering that holds it.
        lost: What its tasks lose to each other and to a slow family, weighted; gangs left out. -1
            until it is asked for, see `Book.lost`.
        paces: Throughput of the members of gangs, by class; empty if there are none.
        fresh: The least that a new instance for it costs, its launch included.
        kind: That instance's offering, by number.
        after: By the class of the task more.
        before: By the class of the task less.
    """

    __slots__ = ("after", "before", "fits", "fresh", "key", "kind", "lost", "need", "paces")

    def __init__(self, key: tuple[int, ...], need: tuple[int, int, int]) -> None:
        self.key = key
        self.need = need
        self.fits = 0
        self.lost = -1
        self.paces: dict[int, int] = {}
        self.fresh = NEVER
        self.kind = -1
        self.after: dict[int, Load] = {}
        self.before: dict[int, Load] = {}


@dataclass(frozen=True, slots=True)
class _Sale:
    """An offering as the book knows it."""

    number: int
    bit: int
    capacity: tuple[int, int, int]
    fresh: int


class Book:
    """Prices sets of tasks, and remembers them as long as prices are the same.

    A book outlives the problem that it was made of: it names classes and offerings by numbers of
    its own. What it says depends on what it is asked alone, not on what it was asked before.

    Attributes:
        offerings: By number; cheapest first.
        index: The number of each offering, by id.
        launch: What launching one costs, by number.
        fresh: That and its price.
        kinds: What can be bought: what a new instance costs with its launch, and its number.
        roots: The load of an empty instance, by family.
        stakes: By class, what a task costs if others fill the rest of the instance, at least.
    """

    def __init__(self, problem: Problem, terms: Terms) -> None:
        self.terms = terms
        self._key = _identity(problem, terms)
        self.offerings = problem.offerings
        self.index = {offering.id: number for number, offering in enumerate(self.offerings)}
        self.launch = [terms.per_hour(launch_cost(offering)) for offering in self.offerings]
        self.fresh = [
            offering.price * MILLION + launch
            for offering, launch in zip(self.offerings, self.launch, strict=True)
        ]
        self._numbers: dict[TaskClass, int] = {}
        self._classes: list[TaskClass] = []
        self._workloads: list[int] = []
        self._labels = frozenset({UNKNOWN, UNPROFILED})
        self._table = ThroughputTable()
        # By what the loss was worked out from: of which set, and of which pairs in it.
        self._holding: dict[tuple[Workload, ...], set[Load]] = {}
        self._learn(problem)
        self._needs: list[dict[Family, tuple[int, int, int]]] = []
        self.stakes: list[int] = []
        self._loads: dict[tuple[Family, tuple[int, ...]], Load] = {}
        self._families: dict[Load, Family] = {}
        self._sales: dict[Family, list[_Sale]] = {}
        for number, offering in enumerate(self.offerings):
            fresh = NEVER
            if problem.buyable(offering.id):
                fresh = self.fresh[number]
            sale = _Sale(number, 1 << number, vector(offering.type.capacity), fresh)
            self._sales.setdefault(offering.type.family, []).append(sale)
        self.kinds = sorted(
            (sale.fresh, sale.number)
            for sales in self._sales.values()
            for sale in sales
            if sale.fresh < NEVER
        )
        self.roots: dict[Family, Load] = {}
        for family in sorted(self._sales):
            root = self._load(family, ())
            root.fits, root.fresh, root.lost = (1 << len(self.offerings)) - 1, 0, 0
            self.roots[family] = root

    def serves(self, problem: Problem, terms: Terms) -> bool:
        """Take up another problem; returns whether the book can be asked about it."""
        if len(self._loads) > _LOADS or self._key != _identity(problem, terms):
            return False
        if self._table != problem.table or any(
            task_class.workload not in self._labels for task_class in problem.classes
        ):
            self._learn(problem)
        return True

    def _learn(self, problem: Problem) -> None:
        """Go by a problem's table; forget what sets lose of whose tasks it says something else."""
        gone, new = changes(self._table.observed, problem.table.observed)
        self._table = problem.table
        for whole in {tuple(sorted((workload, *others))) for (workload, others), _ in gone + new}:
            for load in self._holding.pop(whole, ()):
                load.lost, load.paces = -1, {}
        labels = self._labels.union(
            (task_class.workload for task_class in problem.classes),
            *((workload, *others) for (workload, others), _ in new),
        )
        self._throughput = problem.cache.throughput(problem.table, labels, problem.default_ppm)
        if labels != self._labels:
            index, self._labels = self._throughput.index, labels
            self._workloads = [index[task_class.workload] for task_class in self._classes]

    def number(self, task_class: TaskClass) -> int:
        """The number of a class here."""
        number = self._numbers.get(task_class)
        if number is None:
            number = self._numbers[task_class] = len(self._classes)
            self._classes.append(task_class)
            self._workloads.append(self._throughput.index[task_class.workload])
            self._needs.append({family: vector(need) for family, need in task_class.demand})
            self.stakes.append(self._stake(task_class) * MILLION)
        return number

    def _stake(self, task_class: TaskClass) -> int:
        """The least share of an instance's price that a task must take up."""
        least = task_class.price
        for family, need in task_class.demand:
            wanted = vector(need)
            for sale in self._sales.get(family, ()):
                if sale.fresh < NEVER and all(map(le, wanted, sale.capacity)):
                    price = self.offerings[sale.number].price
                    parts = zip(wanted, sale.capacity, strict=True)
                    share = max((price * part // size for part, size in parts if part), default=0)
                    least = min(least, share)
        return least

    def load(self, root: Load, key: Iterable[int]) -> Load:
        """The load of tasks of some classes, in the family that a load is of."""
        return self._load(self._families[root], tuple(sorted(key)))

    def more(self, load: Load, number: int) -> Load:
        """The load with one more task of a class."""
        found = load.after.get(number)
        if found is None:
            found = self._load(self._families[load], tuple(sorted((*load.key, number))))
            load.after[number] = found
            found.before[number] = load
        return found

    def less(self, load: Load, number: int) -> Load:
        """The load with one task less of a class."""
        found = load.before.get(number)
        if found is None:
            key = list(load.key)
            key.remove(number)
            found = self._load(self._families[load], tuple(key))
            load.before[number] = found
            found.after[number] = load
        return found

    def _load(self, family: Family, key: tuple[int, ...]) -> Load:
        known = self._loads.get((family, key))
        if known is None:
            known = self._loads[family, key] = self._priced(family, key)
            self._families[known] = family
        return known

    def _priced(self, family: Family, key: tuple[int, ...]) -> Load:
        gpus = cpus = memory = 0
        for number in key:
            need = self._needs[number].get(family)
            if need is None:
                return Load(key, (0, 0, 0))
            gpus, cpus, memory = gpus + need[0], cpus + need[1], memory + need[2]
        load = Load(key, (gpus, cpus, memory))
        for sale in self._sales[family]:
            size = sale.capacity
            if gpus <= size[0] and cpus <= size[1] and memory <= size[2]:
                load.fits |= sale.bit
                if sale.fresh < load.fresh:
                    load.fresh, load.kind = sale.fresh, sale.number
        return load

    def lost(self, load: Load) -> int:
        """Work out what the tasks of a load do to each other."""
        if load.lost >= 0:
            return load.lost
        family = self._families[load]
        classes = Counter(load.key)
        tasks: dict[int, int] = {}
        for number, count in classes.items():
            workload = self._workloads[number]
            tasks[workload] = tasks.get(workload, 0) + count
        whole = tuple(sorted(self._classes[number].workload for number in load.key))
        twice = [n for place, n in enumerate(whole) if place < 2 or whole[place - 2] != n]
        for part in {whole, *combinations(twice, 2)}:
            self._holding.setdefault(part, set()).add(load)
        paces = self._throughput.by_workload(tuple(sorted(tasks.items())))
        slow = company = 0
        for number, count in classes.items():
            task_class, pace = self._classes[number], paces[self._workloads[number]]
            if task_class.others:
                # A slow family holds up the gang as bad company does.
                speed = task_class.charge_on(family) * MILLION // task_class.charge
                load.paces[number] = self.terms.counted(speed, pace)
                continue
            price = task_class.price_on(family) if task_class.prices else task_class.price
            slow += count * (task_class.most - price)
            company += count * price * (MILLION - pace)
        load.lost = slow * MILLION + company * self.terms.lost_ppm // MILLION
        return load.lost


def slowdown_cost(charge: int, slowest_ppm: int) -> int:
    """What a gang loses by the member that counts for least, see `Terms.counted`."""
    return charge * (MILLION - slowest_ppm)


class Moves:
    """What moving each running task run costs, and whose gang moves with it.

    A task run that moves holds its reservation price's worth of an instance idle while it is
    checkpointed and started again; a gang does so as a whole, however many of its members move.
    That is to pay within the horizon, or sooner for a task run that was moved a short time ago: the
    better place that it was given then did not stay the better one for longer than that. Of a gang
    the member counts that was not moved for longest.

    Args:
        problem: The snapshot's.
        terms: What counts how much.
        latest: When task runs were moved last.

    Attributes:
        gang: The gang that a task run stands and falls with, if it has more than one member.
        cost: Of moving a task run, or a gang by any of its members; absent if it does not run.
        home: Where every placed task run is now.
    """

    def __init__(
        self, problem: Problem, terms: Terms, latest: Mapping[RunId, Millis] | None = None
    ) -> None:
        self.gang: dict[RunId, str] = {}
        self.home: dict[RunId, Host] = {}
        latest, idle, pays = latest or {}, dict[str, int](), dict[str, int]()
        whole = {
            job.id for job in problem.snapshot.jobs if job.kind is JobKind.GANG and job.runs[1:]
        }
        for run in problem.snapshot.runs:
            if run.instance is None or run.instance not in problem.instances:
                if run.job in whole:
                    self.gang[run.id] = run.job
                continue
            self.home[run.id] = run.instance
            unit: str = run.id
            if run.job in whole:
                unit = self.gang[run.id] = run.job
            if run.running:
                job, number = problem.jobs[run.job], problem.class_of[run.id]
                cost = expected_migration_cost(job, problem.classes[number].price)
                idle[unit] = idle.get(unit, 0) + cost
                moved = latest.get(run.id)
                within = terms.horizon_ms
                if moved is not None:
                    within = terms.pays_within_ms(problem.snapshot.now_ms - moved)
                pays[unit] = max(within, pays.get(unit, 0))
        self.cost = {unit: idle[unit] * terms.moves_ppm // pays[unit] for unit in idle}

    def total(self, places: Mapping[RunId, Host]) -> int:
        """What all task runs that are elsewhere than at home cost."""
        moved = {
            self.gang.get(run, run)
            for run, home in self.home.items()
            if places.get(run, home) != home
        }
        return sum(self.cost.get(unit, 0) for unit in moved)


def evaluate(
    problem: Problem,
    terms: Terms,
    configuration: Configuration,
    latest: Mapping[RunId, Millis] | None = None,
) -> int:
    """The cost of a configuration, worked out from scratch.

    Args:
        problem: The snapshot's.
        terms: What counts how much.
        configuration: Where everything is to be.
        latest: When task runs were moved last.
    """
    book = Book(problem, terms)
    launched = {launch.key: launch.offering for launch in configuration.launches}
    paces: dict[str, int] = {}
    charges: dict[str, int] = {}
    loads: dict[Host, Load] = {}
    total = 0
    for host, contents in configuration.contents.items():
        new = isinstance(host, int)
        offering = launched[host] if isinstance(host, int) else problem.offering_of(host)
        numbers = Counter({book.number(problem.classes[n]): count for n, count in contents.items()})
        load = book.load(book.roots[offering.type.family], numbers.elements())
        loads[host] = load
        total += offering.price * MILLION + book.lost(load)
        total += book.launch[book.index[offering.id]] if new else 0
    for run, host in configuration.places.items():
        task_class = problem.classes[problem.class_of[run]]
        if task_class.charge > task_class.price:
            job = problem.runs[run].job
            pace = loads[host].paces[book.number(task_class)]
            paces[job] = min(paces.get(job, MILLION), pace)
            charges[job] = task_class.charge
    total += sum(slowdown_cost(charges[job], pace) for job, pace in paces.items())
    return total + Moves(problem, terms, latest).total(configuration.places)


def _identity(problem: Problem, terms: Terms) -> tuple[object, ...]:
    """What must not change for a book to be kept."""
    on_sale = tuple(problem.buyable(offering.id) for offering in problem.offerings)
    return terms, problem.default_ppm, problem.offerings, on_sale
