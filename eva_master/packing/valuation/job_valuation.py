"""Valuation of a job's tasks, for accounts, plans and simulations alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from fractions import Fraction

from eva_master.learning.speeds.type_rates import TypeSpeeds, TypeSpeedsView
from eva_master.model.catalog import Offering, Purchase, with_disk
from eva_master.model.job import JobSpec, TaskSpec, different
from eva_master.model.planning.snapshot import StandaloneRates
from eva_master.model.resources import NOTHING
from eva_master.packing.valuation.gang_pace import GangPart, Member, parts
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
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family

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
    """Worth of one task of a job, and the offering behind it.

    Attributes:
        offering: The offering that sets its reservation price, with the disk of the task; `None`
            if no offering hosts the task.
        speeds: Speed of the task on each family, as far as its gang can use it.
    """

    offering: Offering | None
    speeds: Speeds = ()
    _compared: dict[Family, Fraction] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Speeds already compared, since accounts need them at every booking."""

    @property
    def price(self) -> int:
        """The reservation price in micro-dollars per hour (Eva, section 4.2)."""
        return reservation_price(self.offering)

    def speed_on(self, family: Family) -> Fraction:
        """Speed of the task on a family against the family of its reservation price."""
        speed = self._compared.get(family)
        if speed is None:
            speed = relative_speed(family, self.offering, self.speeds)
            self._compared[family] = speed
        return speed


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
        offerings: Offerings of which instances may be launched. An offering that is out of stock
            for a while counts, since it makes a job worth no more. So does an owned node that is
            away, since the unit of remaining work must not depend on it. An offering with limit 0
            does not count.
        standalone: Measured rates of tasks that do not state their own.
    """

    def __init__(
        self, offerings: Iterable[Offering], standalone: StandaloneRates | None = None
    ) -> None:
        listed = tuple(offerings)
        self._offerings = cheapest_first(
            offering
            for offering in listed
            if offering.limit != 0 or offering.purchase is Purchase.OWNED
        )
        self._sheets = sheets(listed)
        self._type_speeds = TypeSpeedsView(self._sheets)
        self._rates = measured_rates_view()
        self._rows = (standalone or StandaloneRates()).measured
        self._measured = self._rates.of(self._rows)
        self._reservations: dict[tuple[Demand, GangPart], Reservation] = {}
        self._gangs: dict[tuple[tuple[Member, ...], bool], tuple[GangPart, ...]] = {}

    def by(self, standalone: StandaloneRates) -> JobValuation:
        """A valuation at the same offerings by other measured rates; both share their results."""
        other = copy(self)
        other._type_speeds = TypeSpeedsView(self._sheets)
        other._rates = measured_rates_view()
        other.follow(standalone)
        return other

    def follow(self, standalone: StandaloneRates) -> None:
        """Use other measured rates from now on; earlier answers stay as they were."""
        self._rows = standalone.measured
        self._measured = self._rates.of(self._rows)

    @property
    def expected(self) -> TypeSpeeds:
        """Expected speeds of families, by data sheets and measurements."""
        return self._type_speeds.of(self._rows)

    def rates(self, task: TaskSpec) -> Rates:
        """Standalone iterations per second of a task, in millionths, per family it can run on.

        Returns:
            Empty if neither the user nor a measurement tells them.
        """
        measured = self._measured.get(task.workload, ())
        return rates(task, measured, self.expected.of(task.workload))

    def of(self, spec: JobSpec) -> tuple[Reservation, ...]:
        """The reservation of each task of a job; members of a gang are valued together."""
        if spec.kind is JobKind.GANG and len(spec.tasks) > 1:
            return self._of_gang(spec.tasks, split=spec.training.split_batch)
        reservations = {task: self.of_task(task) for task in different(spec.tasks)}
        if len(reservations) == 1:
            return (*reservations.values(),) * len(spec.tasks)
        return tuple(reservations[task] for task in spec.tasks)

    def paces(self, tasks: Sequence[TaskSpec], *, split: bool = False) -> Paces:
        """Speeds of the members of a gang together, or of a task alone.

        Args:
            tasks: All members. A member of unknown rates slows no other.
            split: Whether they divide batches by speed.
        """
        rated = [(task, dict(rates_of)) for task in tasks if (rates_of := self.rates(task))]
        if not rated:
            return Paces(0, {})
        families = set[Family].intersection(*(set(rates_of) for _, rates_of in rated))
        on = {
            family: pace_of([rates_of[family] for _, rates_of in rated], split=split)
            for family in families
        }
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
            tasks: The tasks; for a gang, all members.
            gang: Whether they run together.
            split: Whether the members of a gang divide batches by speed.
        """
        if gang and len(tasks) > 1:
            return self._of_gang(tasks, split=split)
        return tuple(map(self.of_task, tasks))

    def of_task(self, task: TaskSpec) -> Reservation:
        """The reservation of a task that is in no gang of several."""
        return self._reserved(task.demand, GangPart(compared(self.rates(task))))

    def _of_gang(self, tasks: Sequence[TaskSpec], *, split: bool) -> tuple[Reservation, ...]:
        members = tuple((task.demand, self.rates(task)) for task in tasks)
        member_parts = zip(tasks, self._gang(members, split=split), strict=True)
        return tuple(self._reserved(task.demand, part) for task, part in member_parts)

    def _gang(self, members: tuple[Member, ...], *, split: bool) -> tuple[GangPart, ...]:
        cached = self._gangs.get((members, split))
        if cached is None:
            if len(self._gangs) >= _RESERVATIONS_KEPT:
                self._gangs.clear()
            cached = gang_parts(members, self._offerings, split=split)
            self._gangs[members, split] = cached
        return cached

    def _reserved(self, demand: Demand, part: GangPart) -> Reservation:
        reserved = self._reservations.get((demand, part))
        if reserved is None:
            if len(self._reservations) >= _RESERVATIONS_KEPT:
                self._reservations.clear()
            offering = worth(demand, self._offerings, part.speeds, part.others)
            if offering is not None:
                need = dict(demand).get(offering.type.family, NOTHING)
                offering = with_disk(offering, need.disk_mib)
            reserved = self._reservations[demand, part] = Reservation(offering, part.speeds)
        return reserved


class JobReservations:
    """Reservations of the tasks of one job, each computed on first use.

    So the cost for one task of an array does not depend on the array's size. Members of a gang are
    valued together.

    Args:
        valuation: The valuation; each result is computed once.
        spec: The job.

    Attributes:
        spec: The job.
    """

    __slots__ = ("_found", "_gang", "_last", "_valuation", "spec")

    def __init__(self, valuation: JobValuation, spec: JobSpec) -> None:
        self._valuation = valuation
        self.spec = spec
        self._gang: tuple[Reservation, ...] = ()
        self._found: dict[TaskSpec, Reservation] = {}
        self._last: tuple[TaskSpec, Reservation] | None = None
        """The last task asked for: tasks of an array are mostly one equal object."""

    def __getitem__(self, index: int) -> Reservation:
        task = self.spec.tasks[index]
        if self._last is not None and self._last[0] is task:
            return self._last[1]
        if self.spec.kind is JobKind.GANG and len(self.spec.tasks) > 1:
            self._gang = self._gang or self._valuation.of(self.spec)
            return self._gang[index]
        reserved = self._found.get(task)
        if reserved is None:
            reserved = self._found[task] = self._valuation.of_task(task)
        self._last = task, reserved
        return reserved


def gang_parts(
    members: Sequence[Member], offerings: Sequence[Offering], *, split: bool = False
) -> tuple[GangPart, ...]:
    """Parts of all members of a gang.

    Args:
        members: Demand and rates of each.
        offerings: Cheapest first.
        split: Whether they divide batches by their speeds.
    """
    own_parts = parts(members, offerings, split=split)
    if own_parts is None:
        return tuple(GangPart(compared(member_rates)) for _, member_rates in members)
    return tuple(own_parts)


def pace_of(rates: Iterable[int], *, split: bool) -> int:
    """Speed of tasks that wait for each other: that of the slowest.

    Args:
        rates: Rate of each; rates of 0 are unknown.
        split: Whether they divide each batch by their speeds: then the speed is the mean.

    Returns:
        Iterations of all of them in the time of the rates; 0 if no rate is known.
    """
    positive = [rate for rate in rates if rate]
    if split and positive:
        return sum(positive) // len(positive)
    return min(positive, default=0)


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
