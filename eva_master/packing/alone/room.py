"""Room of a cluster in which nothing else runs, and the limits that hold in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from eva_master.model.catalog import Offering, base_family
from eva_master.model.job import TaskSpec
from eva_master.model.resources import NOTHING, Resources
from eva_master.model.values import quick
from eva_wire.values.ids import MILLION, Family

Worth = Callable[[int, Offering], int]
"""The price that may be paid for a task, by its index, on an offering: millionths of micro-dollars
per hour."""


@quick
@dataclass(frozen=True, slots=True)
class Stock:
    """Instances of one offering.

    Attributes:
        offering: The offering.
        idle: How many are there and empty.
        most: How many more may be launched; `None` for any number.
    """

    offering: Offering
    idle: int = 0
    most: int | None = None

    def holds(self, task: TaskSpec) -> bool:
        """Whether an empty instance holds a task, and there is or may be one."""
        need = self.need(task)
        available = self.idle > 0 or self.most != 0
        return available and need is not None and need.fits(self.capacity)

    def need(self, task: TaskSpec) -> Resources | None:
        """Resources that a task takes here; `None` if it cannot run on the family."""
        return task.demand_on(self.offering.type.family)

    @property
    def capacity(self) -> Resources:
        """Room of an empty instance."""
        return self.offering.type.capacity


@dataclass(frozen=True, slots=True)
class Caps:
    """Limits of everything that a unit gets; `None` for no limit.

    Attributes:
        launches: Instances that may be launched.
        places: Instances on which its tasks may be, where one of them is launched.
        per_hour: Prices of the launched instances together, in micro-dollars per hour.
        quota: Whether its tenant may have so many more GPUs, by base family.
        worth: The most that may be paid for each of its tasks.
        apart: Whether each task has an instance of its own.
    """

    launches: int | None = None
    places: int | None = None
    per_hour: int | None = None
    quota: Callable[[Mapping[Family, int]], bool] | None = None
    worth: Worth | None = None
    apart: bool = False


NO_CAPS = Caps()


@dataclass(frozen=True, slots=True)
class InstanceSeat:
    """Instance that a task gets.

    Attributes:
        stock: Index of the stock.
        number: The first numbers are of those that are idle; each further one is launched.
    """

    stock: int
    number: int


@dataclass(slots=True)
class Opened:
    """An instance that tasks are put on.

    Attributes:
        seat: The place in its stock.
        offering: Its offering.
        launched: Whether it has to be launched.
        free: Room that remains.
        worth: The most that may be paid for the tasks on it.
        tasks: Number of tasks on it.
        kind: The kind of task that it was opened for.
    """

    seat: InstanceSeat
    offering: Offering
    launched: bool
    free: Resources
    worth: int = 0
    tasks: int = 0
    kind: int = 0

    @property
    def too_dear(self) -> bool:
        """Whether it costs more than may be paid for the tasks on it."""
        return self.launched and self.worth < self.offering.price * MILLION


@dataclass(slots=True)
class UnitSums:
    """Sums over the instances that a unit has so far.

    Attributes:
        launched: How many are launched.
        price: Their prices together.
        gpus: GPUs of its tasks, by base family.
    """

    launched: int = 0
    price: int = 0
    gpus: dict[Family, int] = field(default_factory=dict)

    def use(self, family: Family, need: Resources, times: int = 1) -> None:
        """Count GPUs that a task takes; `times` -1 takes it back."""
        if need.gpus:
            base = base_family(family)
            self.gpus[base] = self.gpus.get(base, 0) + times * need.gpus


def within(caps: Caps, account: UnitSums, places: int) -> bool:
    """Whether a unit's account is within the limits that only get tighter.

    Args:
        caps: The limits.
        account: The instances and GPUs of the unit so far.
        places: Number of instances that its tasks are on.
    """
    if account.launched:
        if caps.launches is not None and account.launched > caps.launches:
            return False
        if caps.places is not None and places > caps.places:
            return False
        if caps.per_hour is not None and account.price > caps.per_hour:
            return False
    return caps.quota is None or not account.gpus or caps.quota(account.gpus)


def each(stock: Stock, task: TaskSpec, *, apart: bool) -> int | None:
    """How many tasks like one an instance holds; `None` for any number."""
    need = stock.need(task)
    if need is None or not need.fits(stock.capacity):
        return 0
    return 1 if apart else need.times_in(stock.capacity)


def kinds_of(tasks: Sequence[TaskSpec]) -> list[int]:
    """The kind of each task: one number for all that need the same and are worth the same."""
    numbers: dict[object, int] = {}
    keys = ((task.demand, task.workload, task.throughput) for task in tasks)
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def alike(tasks: Sequence[TaskSpec]) -> bool:
    """Whether all tasks need the same."""
    return all(task.demand == tasks[0].demand for task in tasks)


def size_of(task: TaskSpec) -> tuple[int, int, int, int]:
    """How large a task is, the largest first: what is hard to place is placed first."""
    most = NOTHING
    for _, need in task.demand:
        most = most.covering(need)
    return most.gpus, most.milli_cpus, most.memory_mib, most.disk_mib
