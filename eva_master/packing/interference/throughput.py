"""How much tasks slow each other down, compiled for the inner loop of the packing algorithms."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from eva_master.model.ids import MILLION, Workload
from eva_master.model.planning.snapshot import ThroughputTable
from eva_master.packing.interference.observations import Observed, observed

Crowd = tuple[tuple[int, int], ...]
"""A multiset of workloads: (number of the workload, how many tasks of it), sorted, none zero."""
Ints = npt.NDArray[np.int64]

UNPROFILED = Workload("\0unprofiled")
"""Of tasks that are to be alone until their standalone throughput is known. Beside one of them,
and itself beside anyone, a task is held to make no progress to speak of."""


class CoLocation:
    """Normalised throughput of co-located tasks, in millionths.

    A multiset that was observed has its recorded value. Any other is estimated: the pairwise
    value of each other workload is raised to the number of its tasks, and these powers are
    multiplied in the order of the workloads' names, rounding down to a millionth after every
    multiplication, so that the result depends on the multiset alone.

    Args:
        table: What was observed.
        workloads: Every workload that may be asked about.
        default_ppm: Pairwise value of workloads that were never seen together.

    Attributes:
        index: The number of each workload.
    """

    def __init__(
        self, table: ThroughputTable, workloads: Iterable[Workload], default_ppm: int
    ) -> None:
        names = sorted(set(workloads))
        self.index = {name: number for number, name in enumerate(names)}
        self._names = names
        self._observed = observed(table)
        self._pairs: Ints = np.full((len(names), len(names)), default_ppm, dtype=np.int64)
        if UNPROFILED in self.index:
            self._pairs[self.index[UNPROFILED], :] = self._pairs[:, self.index[UNPROFILED]] = 1
        for workload in self.index.keys() & self._observed.pairs.keys():
            known = self._observed.pairs[workload]
            for other in self.index.keys() & known.keys():
                self._pairs[self.index[workload], self.index[other]] = known[other]
        self._throughput: dict[tuple[int, Crowd], int] = {}
        self._powers: dict[tuple[int, int], Ints] = {}
        self._losses: dict[Crowd, tuple[Ints, Ints]] = {}
        self._best: dict[Crowd, Ints] = {}

    @cached_property
    def sets(self) -> list[tuple[int, Crowd, int]]:
        """What was observed of tasks beside several others: workload, these, throughput."""
        known, index = frozenset(self._names), self.index
        return [
            (index[workload], crowd_of(index[name] for name in others), ppm)
            for (workload, others), ppm in self._observed.table.observed
            if len(others) > 1 and workload in known and known.issuperset(others)
        ]

    @cached_property
    def harmless(self) -> bool:
        """Whether no task is held to slow another one down."""
        return bool((self._pairs == MILLION).all()) and all(
            ppm == MILLION for _, _, ppm in self.sets
        )

    def _spelled(self, crowd: Crowd) -> tuple[Workload, ...]:
        """The sorted names of a crowd."""
        names = self._names
        return tuple([names[workload] for workload, number in crowd for _ in range(number)])

    @cached_property
    def _rows(self) -> list[list[int]]:
        """The pairwise values as Python's integers, which are faster one by one."""
        rows: list[list[int]] = self._pairs.tolist()
        return rows

    @property
    def pairs(self) -> Ints:
        """Throughput of each workload (row) beside one task of another (column)."""
        return self._pairs

    def throughput(self, workload: int, others: Crowd) -> int:
        """Throughput of a task of `workload` beside `others`, in millionths of standalone."""
        key = workload, others
        found = self._throughput.get(key)
        if found is None:
            found = self._observed.values.get((self._names[workload], self._spelled(others)))
            if found is None:
                found = self._estimated(self._rows[workload], others)
            self._throughput[key] = found
        return found

    def _estimated(self, pairs: list[int], others: Crowd) -> int:
        """What a workload's throughput beside others is by its pairwise values."""
        value = MILLION
        for other, number in others:
            pair = power = pairs[other]
            for _ in range(number - 1):
                power = power * pair // MILLION
            value = value * power // MILLION
        return value

    def losses_after(self, crowd: Crowd) -> tuple[Ints, Ints]:
        """Throughput lost by everyone if one more task joined, for every workload of that task.

        Args:
            crowd: Who is there already.

        Returns:
            The loss of the newcomer, by its workload; and of a task of each workload in
            `crowd` (rows, in the order of the crowd), by the newcomer's workload (columns).
            In millionths.
        """
        losses = self._losses.get(crowd)
        if losses is None:
            newcomer, members = self._estimate_after(crowd)
            row = {workload: number for number, (workload, _) in enumerate(crowd)}
            for name, whose, ppm in self._observed.arrivals(self._spelled(crowd)):
                joining = self.index.get(name)
                if joining is None:
                    continue
                workload = self.index[whose]
                if joining == workload:
                    newcomer[workload] = ppm
                if workload in row:
                    members[row[workload], joining] = ppm
            losses = MILLION - newcomer, MILLION - members
            self._losses[crowd] = losses
        return losses

    def at_best_beside(self, crowd: Crowd) -> Ints:
        """Bound the throughput of tasks in any company that includes `crowd`.

        More company never raises an estimate, but it may have been observed to do better than
        estimated.

        Args:
            crowd: Neighbours that are certain.

        Returns:
            For each workload the most that a task of it can run at, in millionths.
        """
        best = self._best.get(crowd)
        if best is None:
            best = np.full(len(self.index), MILLION, dtype=np.int64)
            for other, number in crowd:
                best = best * self._power(other, number) // MILLION
            present = dict(crowd)
            for workload, others, ppm in self.sets:
                if ppm > best[workload] and _includes(others, present):
                    best[workload] = ppm
            self._best[crowd] = best
        return best

    def at_best_among(self, number: int) -> Ints:
        """Bound the throughput of tasks that have at least so many neighbours.

        Args:
            number: How many, of whatever workload.

        Returns:
            For each workload the most that a task of it can run at, in millionths.
        """
        if number == 0 or not self.index:
            return np.full(len(self.index), MILLION, dtype=np.int64)
        kindest: Ints = self._pairs.max(axis=1)
        best = kindest.copy()
        for _ in range(number - 1):
            # The order of multiplications may matter to the last digit.
            best = np.minimum(best * kindest // MILLION + 1, MILLION)
        for workload, others, ppm in self.sets:
            if ppm > best[workload] and sum(count for _, count in others) >= number:
                best[workload] = ppm
        return best

    def _estimate_after(self, crowd: Crowd) -> tuple[Ints, Ints]:
        size = len(self.index)
        newcomer: Ints = np.full(size, MILLION, dtype=np.int64)
        members: Ints = np.full((len(crowd), size), MILLION, dtype=np.int64)
        present = np.array([workload for workload, _ in crowd], dtype=np.int64)
        joining = np.arange(size)
        # A workload that is new to the crowd enters the product at its place in the order.
        place = np.searchsorted(present, joining)
        place[present] = -1
        for row, (other, number) in enumerate(crowd):
            newcomer = newcomer * self._power(other, number) // MILLION
            self._multiply_new(members, present, place == row)
            # A task does not disturb itself: its own workload counts one less.
            factor, grown = self._power(other, number)[present], self._power(other, number + 1)
            grown = grown[present]
            factor[row], grown[row] = self._power(other, number - 1)[other], factor[row]
            same = members[:, other] * grown // MILLION
            members = members * factor[:, np.newaxis] // MILLION
            members[:, other] = same
        self._multiply_new(members, present, place == len(crowd))
        return newcomer, members

    def _multiply_new(self, members: Ints, present: Ints, columns: npt.NDArray[np.bool_]) -> None:
        if columns.any():
            pairs = self._pairs[present][:, columns]
            members[:, columns] = members[:, columns] * pairs // MILLION

    def _power(self, other: int, number: int) -> Ints:
        """Throughput of each workload beside `number` tasks of `other`, from pairwise values."""
        known = self._powers.get((other, number))
        if known is None:
            known = np.full(len(self.index), MILLION, dtype=np.int64)
            self._powers[other, 0] = known
            for exponent in range(1, number + 1):
                known = known * self._pairs[:, other] // MILLION
                self._powers[other, exponent] = known
        return known


def compiled(
    table: ThroughputTable, workloads: frozenset[Workload], default_ppm: int
) -> CoLocation:
    """A `CoLocation`; what one remembers changes nothing, so they can be shared."""
    return _compiled(observed(table), workloads, default_ppm)


@lru_cache(maxsize=16)
def _compiled(seen: Observed, workloads: frozenset[Workload], default_ppm: int) -> CoLocation:
    return CoLocation(seen.table, workloads, default_ppm)


def crowd_of(workloads: Iterable[int]) -> Crowd:
    """Count workloads."""
    counts: dict[int, int] = {}
    for workload in workloads:
        counts[workload] = counts.get(workload, 0) + 1
    return tuple(sorted(counts.items()))


def _includes(crowd: Crowd, part: dict[int, int]) -> bool:
    """Whether a multiset of workloads includes another one."""
    counts = dict(crowd)
    return all(counts.get(workload, 0) >= number for workload, number in part.items())
