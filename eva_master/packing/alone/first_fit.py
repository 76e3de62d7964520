"""Places for many tasks of several kinds: the largest kind first, each in the first room for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from eva_master.model.job import TaskSpec
from eva_master.packing.alone.room import (
    Caps,
    InstanceSeat,
    Opened,
    Stock,
    UnitSums,
    kinds_of,
    size_of,
    within,
)

_STEPS = 100_000
"""Given up after so many looks at an instance for a kind of task."""


def first_fit(
    tasks: Sequence[TaskSpec], stocks: Sequence[Stock], order: Sequence[int], caps: Caps
) -> list[InstanceSeat] | None:
    """Places for tasks that run together, found without going back.

    The worth of instances is left out: `caps.worth` is not looked at.

    Args:
        tasks: The tasks, at least one.
        stocks: Instances that exist or may be launched.
        order: Indexes of all stocks; the first that holds a task is opened.
        caps: The limits.

    Returns:
        A place for each task; `None` if some are left over, or too many kinds differ.
    """
    members: dict[int, list[int]] = {}
    for task, kind in enumerate(kinds_of(tasks)):
        members.setdefault(kind, []).append(task)
    bins = _Bins(stocks, order, caps)
    seats: dict[int, InstanceSeat] = {}
    for same in sorted(members.values(), key=lambda same: size_of(tasks[same[0]]), reverse=True):
        given = bins.put(tasks[same[0]], len(same))
        if given is None:
            return None
        seats.update(zip(same, given, strict=True))
    return [seats[task] for task in range(len(tasks))]


class _Bins:
    """Instances that tasks are put on, in the order in which they are opened."""

    def __init__(self, stocks: Sequence[Stock], order: Sequence[int], caps: Caps) -> None:
        self._stocks = stocks
        self._order = order
        self._caps = caps
        self._opened: list[Opened] = []
        self._numbers: Counter[int] = Counter()
        self._sums = UnitSums()
        self._left = _STEPS

    def put(self, task: TaskSpec, count: int) -> list[InstanceSeat] | None:
        """Places for so many tasks that are alike."""
        seats: list[InstanceSeat] = []
        for opened in self._opened:
            seats += self._filled(opened, task, count - len(seats))
        for index in self._order:
            stock = self._stocks[index]
            while len(seats) < count and stock.holds(task) and self._available(index):
                seats += self._filled(self._open(index), task, count - len(seats))
                if self._left <= 0 or not within(self._caps, self._sums, len(self._opened)):
                    return None
        return seats if len(seats) == count and self._left > 0 else None

    def _available(self, index: int) -> bool:
        stock = self._stocks[index]
        return stock.most is None or self._numbers[index] < stock.idle + stock.most

    def _open(self, index: int) -> Opened:
        stock, seat = self._stocks[index], InstanceSeat(index, self._numbers[index])
        launched = seat.number >= stock.idle
        self._numbers[index] += 1
        self._sums.launched += launched
        self._sums.price += launched * stock.offering.price
        opened = Opened(seat, stock.offering, launched, stock.capacity)
        self._opened.append(opened)
        return opened

    def _filled(self, opened: Opened, task: TaskSpec, count: int) -> list[InstanceSeat]:
        """The instance, as often as it takes one of so many tasks."""
        self._left -= 1
        need = self._stocks[opened.seat.stock].need(task)
        full = self._caps.apart and opened.tasks
        if count <= 0 or need is None or full or not need.fits(opened.free):
            return []
        room = need.times_in(opened.free)
        taken = min(count, 1 if self._caps.apart else count if room is None else room)
        opened.free -= need.times(taken)
        opened.tasks += taken
        self._sums.use(opened.offering.type.family, need.times(taken))
        return [opened.seat] * taken
