"""What the tasks of a job are worth: the one valuation that books, plans and simulations ask."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from fractions import Fraction

from eva_master.learning.speeds.type_rates import TypeSpeeds, TypeSpeedsView
from eva_master.model.catalog import Offering, Purchase
from eva_master.model.ids import Family
from eva_master.model.job import JobKind, JobSpec, TaskSpec, different
from eva_master.model.planning.snapshot import StandaloneRates
from eva_master.packing.valuation.gang_pace import Member, Part, parts
from eva_master.packing.valuation.reservation_price import (
    SAME_SPEED,
    Demand,
    Rates,
    Speeds,
    cheapest_first,
    compared,
    counted_price,
    measured_rates_view,
    rates,
    relative_speed,
    reservation_price,
    sheets,
    worth,
)

__all__ = [
    "JobReservations",
    "JobValuation",
    "Paces",
    "Rates",
    "Reservation",
    "counted_price",
    "gang_parts",
    "pace_of",
    "slowest",
]

_RESERVATIONS_KEPT = 65_536
"""Different tasks whose reservations are remembered at most."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """What one task of a job is worth, and where.

    Attributes:
        offering: The offering that sets its reservation price, `None` if nothing hosts the task.
        speeds: How fast the task runs on each family, as far as its gang can use it.
    """

    offering: Offering | None
    speeds: Speeds = ()
    _compared: dict[Family, Fraction] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Speeds that were asked for, since accounts ask for them at every booking."""

    @property
    def price(self) -> int:
        """The reservation price in micro-dollars per hour (Eva, section 4.2)."""
        return reservation_price(self.offering)

    def speed_on(self, family: Family) -> Fraction:
        """How fast the task runs on a family against where its reservation price comes from."""
        known = self._compared.get(family)
        if known is None:
            known = relative_speed(family, self.offering, self.speeds)
            self._compared[family] = known
        return known


@dataclass(frozen=True, slots=True)
class Paces:
    """How fast tasks are that wait for each other, in millionths of iterations per second.

    Attributes:
        home: Where each is on the family that sets its reservation price; 0 if that is not known.
        on: Where all are on one family, by those on which all can run and are known.
    """

    home: int
    on: Mapping[Family, int]


class JobValuation:
    """Values jobs at one set of offerings and of standalone rates.

    Args:
        offerings: What instances may be launched of. An offering that is out of stock for a while
            counts: a job is worth no more for it. So does an owned node that is away, or work that
            is left would be told in other units while it is. One whose limit is 0 does not count.
        standalone: Measured rates of tasks that do not state their own.
    """

    def __init__(
        self, offerings: Iterable[Offering], standalone: StandaloneRates | None = None
    ) -> None:
        listed = tuple(offerings)
        self._offerings = cheapest_first(
            it for it in listed if it.limit != 0 or it.purchase is Purchase.OWNED
        )
        self._sheets = sheets(listed)
        self._type_speeds = TypeSpeedsView(self._sheets)
        self._rates = measured_rates_view()
        self._rows = (standalone or StandaloneRates()).measured
        self._measured = self._rates.of(self._rows)
        self._reservations: dict[tuple[Demand, Part], Reservation] = {}
        self._gangs: dict[tuple[tuple[Member, ...], bool], tuple[Part, ...]] = {}

    def by(self, standalone: StandaloneRates) -> JobValuation:
        """A valuation at the same offerings by other measured rates, which shares what it finds."""
        other = copy(self)
        other._type_speeds = TypeSpeedsView(self._sheets)
        other._rates = measured_rates_view()
        other.follow(standalone)
        return other

    def follow(self, standalone: StandaloneRates) -> None:
        """Go by other measured rates from now on; what was said so far stays as it was."""
        self._rows = standalone.measured
        self._measured = self._rates.of(self._rows)

    @property
    def expected(self) -> TypeSpeeds:
        """How fast families are expected to be, by data sheets and what was measured."""
        return self._type_speeds.of(self._rows)

    def rates(self, task: TaskSpec) -> Rates:
        """Standalone iterations per second of a task, in millionths, per family it can run on.

        Returns:
            Empty if neither the user nor a measurement tells them.
        """
        measured = self._measured.get(task.workload, ())
        return rates(task, measured, self.expected.of(task.workload))

    def of(self, spec: JobSpec) -> tuple[Reservation, ...]:
        """The reservation of each task of a job; those of a gang are found together."""
        if spec.kind is JobKind.GANG and len(spec.tasks) > 1:
            return self._of_gang(spec.tasks, split=spec.split_batch)
        known = {task: self.of_task(task) for task in different(spec.tasks)}
        if len(known) == 1:
            return (*known.values(),) * len(spec.tasks)
        return tuple(known[task] for task in spec.tasks)

    def paces(self, tasks: Sequence[TaskSpec], *, split: bool = False) -> Paces:
        """How fast the members of a gang are together, or a task alone.

        Args:
            tasks: All members. One of unknown rates holds nobody up.
            split: Whether they divide batches by speed.
        """
        rated = [(task, dict(known)) for task in tasks if (known := self.rates(task))]
        if not rated:
            return Paces(0, {})
        families = set[Family].intersection(*(set(known) for _, known in rated))
        on = {it: pace_of([known[it] for _, known in rated], split=split) for it in families}
        homes = self._of_gang(tasks, split=split) if len(tasks) > 1 else (self.of_task(tasks[0]),)
        at_home = [
            dict(self.rates(task)).get(reserved.offering.type.family, 0)
            for task, reserved in zip(tasks, homes, strict=True)
            if reserved.offering is not None
        ]
        return Paces(pace_of(at_home, split=split), on)

    def of_tasks(
        self, tasks: Sequence[TaskSpec], *, gang: bool, split: bool = False
    ) -> tuple[Reservation, ...]:
        """The reservation of each of some tasks of one job.

        Args:
            tasks: Of a gang all members.
            gang: Whether they run together.
            split: Whether the members of a gang divide batches by speed.
        """
        if gang and len(tasks) > 1:
            return self._of_gang(tasks, split=split)
        return tuple(map(self.of_task, tasks))

    def of_task(self, task: TaskSpec) -> Reservation:
        """The reservation of a task that is in no gang of several."""
        return self._reserved(task.demand, Part(compared(self.rates(task))))

    def _of_gang(self, tasks: Sequence[TaskSpec], *, split: bool) -> tuple[Reservation, ...]:
        members = tuple((task.demand, self.rates(task)) for task in tasks)
        found = zip(tasks, self._gang(members, split=split), strict=True)
        return tuple(self._reserved(task.demand, part) for task, part in found)

    def _gang(self, members: tuple[Member, ...], *, split: bool) -> tuple[Part, ...]:
        known = self._gangs.get((members, split))
        if known is None:
            if len(self._gangs) >= _RESERVATIONS_KEPT:
                self._gangs.clear()
            known = gang_parts(members, self._offerings, split=split)
            self._gangs[members, split] = known
        return known

    def _reserved(self, demand: Demand, part: Part) -> Reservation:
        known = self._reservations.get((demand, part))
        if known is None:
            if len(self._reservations) >= _RESERVATIONS_KEPT:
                self._reservations.clear()
            offering = worth(demand, self._offerings, part.speeds, part.others)
            known = self._reservations[demand, part] = Reservation(offering, part.speeds)
        return known


class JobReservations:
    """The reservations of the tasks of one job, each found when it is asked for the first time.

    So one task of an array costs the same however many there are. Those of a gang are found
    together.

    Args:
        valuation: What they are worth; nothing is asked again of what was found.
        spec: The job.
    """

    __slots__ = ("_found", "_gang", "_last", "_spec", "_valuation")

    def __init__(self, valuation: JobValuation, spec: JobSpec) -> None:
        self._valuation = valuation
        self._spec = spec
        self._gang: tuple[Reservation, ...] = ()
        self._found: dict[TaskSpec, Reservation] = {}
        self._last: tuple[TaskSpec, Reservation] | None = None
        """The task that was asked for last: those of an array are mostly the same one."""

    def __getitem__(self, index: int) -> Reservation:
        task = self._spec.tasks[index]
        if self._last is not None and self._last[0] is task:
            return self._last[1]
        if self._spec.kind is JobKind.GANG and len(self._spec.tasks) > 1:
            self._gang = self._gang or self._valuation.of(self._spec)
            return self._gang[index]
        found = self._found.get(task)
        if found is None:
            found = self._found[task] = self._valuation.of_task(task)
        self._last = task, found
        return found


def gang_parts(
    members: Sequence[Member], offerings: Sequence[Offering], *, split: bool = False
) -> tuple[Part, ...]:
    """What a gang needs of each of its members.

    Args:
        members: Demand and rates of each.
        offerings: Cheapest first.
        split: Whether they divide batches by how fast they are.
    """
    found = parts(members, offerings, split=split)
    if found is None:
        return tuple(Part(compared(known)) for _, known in members)
    return tuple(found)


def pace_of(rates: Iterable[int], *, split: bool) -> int:
    """How fast tasks are that wait for each other: as the slowest.

    Args:
        rates: Of each; those of 0 are unknown.
        split: Whether they divide each batch by how fast they are: then as the mean.

    Returns:
        Iterations of all of them in the time of the rates; 0 if no rate is known.
    """
    known = [rate for rate in rates if rate]
    if split and known:
        return sum(known) // len(known)
    return min(known, default=0)


def slowest(speeds: Iterable[Fraction]) -> Fraction:
    """The pace of tasks that wait for each other; 1 if there are none."""
    return min(speeds, default=SAME_SPEED)


def divided(speeds: Sequence[Fraction], members: int) -> Fraction:
    """The pace of a gang that divides batches by speed.

    Args:
        speeds: Of the members that run, each as fast as the whole gang would be if only that member
            were elsewhere than where it is worth most; see `gang_pace.Part`.
        members: How many the gang has, which are alike if not all of them run.

    Returns:
        Its pace with those that run, against that of all where they are worth most.
    """
    if not speeds:
        return SAME_SPEED
    more = sum((speed - SAME_SPEED for speed in speeds), Fraction(0))
    return SAME_SPEED + more * members / len(speeds)
