"""How many tasks that are alike run together where only so much may be had."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eva_master.model.job import TaskSpec
from eva_master.packing.alone.room import Caps, InstanceSeat, Stock, each

_STEPS = 20_000
"""A search is broken off after so many steps."""


@dataclass(frozen=True, slots=True)
class Together:
    """How many tasks run at a time.

    Attributes:
        tasks: The most that was found, and no more than were asked for.
        used: How many instances of each stock these take, by its index.
        proven: Whether no more than these run together.
    """

    tasks: int
    used: tuple[tuple[int, int], ...] = ()
    proven: bool = True


def together(task: TaskSpec, wanted: int, stocks: Sequence[Stock], caps: Caps) -> Together:
    """The most tasks like one that run together, up to a number.

    The worth of instances is left out: `caps.worth` and `caps.quota` are not looked at.

    Args:
        task: One of them.
        wanted: The number of tasks that is enough.
        stocks: Instances that exist or may be launched.
        caps: The limits.
    """
    rows = []
    for index, stock in enumerate(stocks):
        most = each(stock, task, apart=caps.apart)
        room = wanted if most is None else min(most, wanted)
        if room:
            rows.append((index, room, stock.idle, stock.most, stock.offering.price))
    idle = [(index, room, idle_count, 0) for index, room, idle_count, _, _ in rows if idle_count]
    kept = _filled(idle, wanted)
    launched = [(i, room, wanted if most is None else most, p) for i, room, _, most, p in rows]
    search = _LaunchSearch(wanted, idle, [launch for launch in launched if launch[2] > 0], caps)
    return max(kept, search.best(), key=lambda it: (it.tasks, it.proven))


_Row = tuple[int, int, int, int]
"""A stock's index, how many tasks an instance holds, how many instances there are, the price."""


def _filled(rows: Sequence[_Row], wanted: int, places: int | None = None) -> Together:
    """Fill instances up, the largest first."""
    tasks, used = 0, list[tuple[int, int]]()
    for index, room, instances, _ in sorted(rows, key=lambda row: -row[1]):
        count = min(instances, -(-(wanted - tasks) // room))
        if places is not None:
            count = min(count, places - sum(number for _, number in used))
        if count > 0:
            tasks += count * room
            used.append((index, count))
        if tasks >= wanted:
            break
    return Together(min(tasks, wanted), tuple(used))


class _LaunchSearch:
    """Instances that are launched, within limits, beside those that are idle."""

    def __init__(self, wanted: int, idle: Sequence[_Row], rows: Sequence[_Row], caps: Caps) -> None:
        self._wanted = wanted
        self._idle = idle
        self._rows = sorted(rows, key=lambda row: (row[3] / row[1], -row[1]))
        self._places = wanted if caps.places is None else min(caps.places, wanted)
        self._launches = min(self._places, wanted if caps.launches is None else caps.launches)
        self._per_hour = caps.per_hour
        self._left = _STEPS
        self._best = Together(0)

    def best(self) -> Together:
        """The most tasks of which at least one is on an instance that is launched."""
        if self._per_hour is None:
            self._rows.sort(key=lambda row: -row[1])
        self._go(0, 0, self._launches, self._per_hour, ())
        broken_off = self._left <= 0 and self._best.tasks < self._wanted
        return Together(self._best.tasks, self._best.used, proven=not broken_off)

    def _go(
        self,
        row: int,
        tasks: int,
        launches: int,
        budget: int | None,
        used: tuple[tuple[int, int], ...],
    ) -> None:
        """Try numbers of instances of the stocks, from a certain stock on."""
        self._left -= 1
        if used:
            spare = self._places - sum(count for _, count in used)
            beside = _filled(self._idle, self._wanted - tasks, spare) if spare else Together(0)
            if tasks + beside.tasks > self._best.tasks:
                self._best = Together(tasks + beside.tasks, _summed(used, beside.used))
        if row == len(self._rows) or self._best.tasks >= self._wanted or self._left <= 0:
            return
        if tasks + self._bound(row, launches, budget) <= self._best.tasks:
            return
        index, room, available, price = self._rows[row]
        most = min(available, launches, -(-(self._wanted - tasks) // room))
        if budget is not None and price:
            most = min(most, budget // price)
        # If neither prices nor idle instances count, the most instances of the largest size are
        # best.
        fewer = budget is not None or bool(self._idle)
        for count in range(most, -1 if fewer else most - 1, -1):
            more = ((index, count),) if count else ()
            rest = None if budget is None else budget - count * price
            filled = min(self._wanted, tasks + count * room)
            self._go(row + 1, filled, launches - count, rest, (*used, *more))

    def _bound(self, row: int, launches: int, budget: int | None) -> int:
        """Upper bound of the tasks on further instances, idle ones included."""
        idle = sum(room * count for _, room, count, _ in self._idle)
        rest = self._rows[row:]
        most = launches * max(room for _, room, _, _ in rest)
        if budget is not None:
            _, room, _, price = rest[0]  # the cheapest per task
            if price:
                most = min(most, budget * room // price)
        return idle + min(most, sum(room * count for _, room, count, _ in rest))


def _summed(
    used: Sequence[tuple[int, int]], more: Sequence[tuple[int, int]]
) -> tuple[tuple[int, int], ...]:
    total = dict(more)
    for index, count in used:
        total[index] = total.get(index, 0) + count
    return tuple(sorted(total.items()))


def seats(
    found: Together, task: TaskSpec, stocks: Sequence[Stock], caps: Caps
) -> list[InstanceSeat]:
    """A place for each of the tasks that run together."""
    given: list[InstanceSeat] = []
    for index, count in found.used:
        room = each(stocks[index], task, apart=caps.apart)
        for number in range(count):
            wanted = found.tasks - len(given)
            given.extend(
                [InstanceSeat(index, number)] * (wanted if room is None else min(room, wanted))
            )
    return given
