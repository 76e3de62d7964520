"""Places for tasks that run together, in a cluster in which nothing else runs.

The search is exhaustive for units of few tasks. So the answer that a unit never fits is a proof,
and a unit that fits is placed whatever its tasks are worth there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from eva_master.model.job import TaskSpec
from eva_master.packing.alone.alike import seats, together
from eva_master.packing.alone.first_fit import first_fit
from eva_master.packing.alone.room import (
    NO_CAPS,
    Caps,
    InstanceSeat,
    Opened,
    Stock,
    UnitSums,
    alike,
    kinds_of,
    size_of,
    within,
)

_STEPS_BY_PRICE = 2_000
_STEPS = 20_000
"""A search is broken off after so many steps."""
_MOST_TASKS = 256
"""Units of more tasks that differ are placed without a search."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Outcome of a search.

    Attributes:
        seats: A place for each task; `None` if none was found.
        proven: Whether that is certain; else the search was broken off.
    """

    seats: tuple[InstanceSeat, ...] | None
    proven: bool = True


def fit(tasks: Sequence[TaskSpec], stocks: Sequence[Stock], caps: Caps = NO_CAPS) -> Fit:
    """Places for tasks that run together.

    Args:
        tasks: The tasks, at least one.
        stocks: Instances that exist or may be launched.
        caps: The limits.
    """
    counted = together(tasks[0], len(tasks), stocks, caps) if alike(tasks) else None
    if counted is not None and counted.tasks < len(tasks):
        return Fit(None, counted.proven)
    cheap = sorted(range(len(stocks)), key=lambda it: _by_price(stocks[it]))
    large = sorted(range(len(stocks)), key=lambda it: _by_size(stocks[it]))
    if len(tasks) <= _MOST_TASKS:
        result = _FitSearch(tasks, stocks, caps, cheap, _STEPS_BY_PRICE).outcome()
        if result.seats is not None or result.proven:
            return result
    if counted is not None:
        given = tuple(seats(counted, tasks[0], stocks, caps))
        if allowed(given, tasks, stocks, caps):
            return Fit(given)
    if len(tasks) <= _MOST_TASKS:
        return _FitSearch(tasks, stocks, caps, large, _STEPS).outcome()
    for order in (cheap, large):
        rough = first_fit(tasks, stocks, order, caps)
        if rough is not None and allowed(rough, tasks, stocks, caps):
            return Fit(tuple(rough))
    return Fit(None, proven=False)


def allowed(
    given: Sequence[InstanceSeat], tasks: Sequence[TaskSpec], stocks: Sequence[Stock], caps: Caps
) -> bool:
    """Whether places are within all limits."""
    opened, account = dict[InstanceSeat, Opened](), UnitSums()
    for index, (seat, task) in enumerate(zip(given, tasks, strict=True)):
        stock = stocks[seat.stock]
        if seat not in opened:
            opened[seat] = _open(stock, seat)
            _count(account, opened[seat], 1)
        need = stock.need(task)
        if need is None:
            return False
        account.use(stock.offering.type.family, need)
        if caps.worth is not None:
            opened[seat].worth += caps.worth(index, stock.offering)
    dear = caps.worth is not None and any(instance.too_dear for instance in opened.values())
    return not dear and within(caps, account, len(opened))


def _open(stock: Stock, seat: InstanceSeat, kind: int = 0) -> Opened:
    launched = seat.number >= stock.idle
    return Opened(seat, stock.offering, launched, stock.capacity, kind=kind)


def _count(account: UnitSums, opened: Opened, times: int) -> None:
    if opened.launched:
        account.launched += times
        account.price += times * opened.offering.price


class _FitSearch:
    """Puts one task after the other, the largest first, and goes back where one has no place.

    Tasks that are alike are put on instances in the order in which these were opened, so that no
    two outcomes differ by the names of tasks alone.
    """

    def __init__(
        self,
        tasks: Sequence[TaskSpec],
        stocks: Sequence[Stock],
        caps: Caps,
        order: Sequence[int],
        steps: int,
    ) -> None:
        self._tasks = tasks
        self._stocks = stocks
        self._caps = caps
        self._rank = {stock: rank for rank, stock in enumerate(order)}
        self._order = order
        self._steps = steps
        self._kinds = kinds_of(tasks)
        self._sequence = sorted(
            range(len(tasks)), key=lambda it: (size_of(tasks[it]), self._kinds[it]), reverse=True
        )
        self._opened: list[Opened] = []
        self._account = UnitSums()
        self._places: list[int] = []
        """Of the tasks that have a place, in their sequence, the number of the instance."""

    def outcome(self) -> Fit:
        """Search until all tasks have a place, no option remains, or the steps are used up."""
        options = [self._options()]
        while options:
            self._steps -= 1
            if self._steps < 0:
                return Fit(None, proven=False)
            chosen = next(options[-1], None)
            if chosen is None:
                options.pop()
                if options:
                    self._take()
                continue
            self._put(chosen)
            if not within(self._caps, self._account, len(self._opened)):
                self._take()
            elif len(self._places) < len(self._tasks):
                options.append(self._options())
            elif self._caps.worth is None or not any(
                instance.too_dear for instance in self._opened
            ):
                return Fit(self._seats())
            else:
                self._take()
        return Fit(None)

    def _options(self) -> Iterator[int | InstanceSeat]:
        """Options for the next task: an opened instance, by its number, or one more instance."""
        task = self._sequence[len(self._places)]
        first, kind = 0, self._kinds[task]
        if self._places and self._kinds[self._sequence[len(self._places) - 1]] == kind:
            first = self._places[-1]
        met = set[object]()
        choices: list[int | InstanceSeat] = []
        for number, instance in enumerate(self._opened[first:], first):
            need = self._stocks[instance.seat.stock].need(self._tasks[task])
            state = instance.seat.stock, instance.launched, instance.free, instance.worth
            full = self._caps.apart and instance.tasks
            if need is None or full or not need.fits(instance.free) or state in met:
                continue
            met.add(state)
            choices.append(number)
        least = self._least_rank(kind)
        choices += [seat for seat in self._fresh(task) if self._rank[seat.stock] >= least]
        return iter(choices)

    def _least_rank(self, kind: int) -> int:
        """Instances that are opened for tasks of one kind in a row are so in one order."""
        last = self._opened[-1] if self._opened else None
        if last is None or last.kind != kind or self._places[-1] != len(self._opened) - 1:
            return 0
        return self._rank[last.seat.stock]

    def _fresh(self, task: int) -> Iterator[InstanceSeat]:
        """One more instance of each stock that holds a task."""
        for index in self._order:
            stock = self._stocks[index]
            number = sum(instance.seat.stock == index for instance in self._opened)
            available = stock.most is None or number < stock.idle + stock.most
            if available and stock.holds(self._tasks[task]):
                yield InstanceSeat(index, number)

    def _put(self, where: int | InstanceSeat) -> None:
        task = self._sequence[len(self._places)]
        if isinstance(where, InstanceSeat):
            self._opened.append(_open(self._stocks[where.stock], where, self._kinds[task]))
            _count(self._account, self._opened[-1], 1)
            where = len(self._opened) - 1
        self._places.append(where)
        self._move(task, self._opened[where], 1)

    def _take(self) -> None:
        """Take the place of the last task away."""
        number = self._places.pop()
        opened = self._opened[number]
        self._move(self._sequence[len(self._places)], opened, -1)
        if not opened.tasks:
            self._opened.pop()
            _count(self._account, opened, -1)

    def _move(self, task: int, opened: Opened, times: int) -> None:
        need = self._stocks[opened.seat.stock].need(self._tasks[task])
        assert need is not None
        opened.tasks += times
        opened.free = opened.free - need if times > 0 else opened.free + need
        self._account.use(opened.offering.type.family, need, times)
        if self._caps.worth is not None:
            opened.worth += times * self._caps.worth(task, opened.offering)

    def _seats(self) -> tuple[InstanceSeat, ...]:
        given = dict(zip(self._sequence, self._places, strict=True))
        return tuple(self._opened[given[task]].seat for task in range(len(self._tasks)))


def _by_price(stock: Stock) -> tuple[object, ...]:
    return not stock.idle, stock.offering.price, stock.offering.id


def _by_size(stock: Stock) -> tuple[object, ...]:
    size = stock.capacity
    return -size.gpus, -size.milli_cpus, -size.memory_mib, stock.offering.price, stock.offering.id
