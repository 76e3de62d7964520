"""How fast tasks that share an instance run: the one model that everything in packing asks.

The rule itself is `learning.colocation.throughput_beside`. This module answers it for whole task
sets, and vectorised for all workloads that could join one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from eva_master.learning.colocation import Key, estimated, throughput_beside, times
from eva_master.packing.interference.observations import ObservationIndex
from eva_master.packing.interference.throughput_rows import Floats, PairwiseThroughput
from eva_wire.values.ids import MILLION, Workload

WorkloadMultiset = tuple[tuple[int, int], ...]
"""The workloads of a task set: (number of the workload, how many tasks), sorted, none zero."""
Ints = npt.NDArray[np.int64]

UNPROFILED = Workload("\0unprofiled")
"""Of tasks that are to be alone: nobody knows their standalone throughput, or they would be late.
Beside one of them, and itself beside anyone, a task is held to make no progress to speak of."""


def alone_with_its_gang(number: int, workload: Workload) -> Workload:
    """Label of a member of a gang that must have no neighbours but members of its gang.

    Members that are known to slow each other down are kept apart too.

    Args:
        number: Number of the gang, among the gangs of one problem.
        workload: The member's workload, which determines its effect on the rest of its gang.
    """
    return Workload(f"{UNPROFILED}\0{number}\0{workload}")


_TASK_SETS_REMEMBERED = 262_144
"""Task sets whose throughput a model remembers."""


class ExactThroughput:
    """Normalised throughput of the tasks of one set, in millionths of their standalone throughput.

    Workloads are numbered at their first use.

    Args:
        look_up: Function that gives an observed throughput, see `throughput_beside`.
        default_ppm: Pairwise throughput of workloads never observed together.
        workloads: Workloads that are numbered first, in this order.
    """

    def __init__(
        self,
        look_up: Callable[[Key], int | None],
        default_ppm: int,
        workloads: Iterable[Workload] = (),
    ) -> None:
        self._look_up = look_up
        self._default_ppm = default_ppm
        self._names = list(workloads)
        self.index = {name: number for number, name in enumerate(self._names)}
        self._exact: dict[WorkloadMultiset, tuple[int, ...]] = {}

    def number(self, workload: Workload) -> int:
        """Number of a workload in task sets, assigned at its first use."""
        number = self.index.get(workload)
        if number is None:
            number = self.index[workload] = len(self._names)
            self._names.append(workload)
        return number

    def exact(self, task_set: WorkloadMultiset) -> tuple[int, ...]:
        """Throughput of a task of each workload of a set, in the order of the set."""
        exact = self._exact.get(task_set)
        if exact is None:
            if len(self._exact) >= _TASK_SETS_REMEMBERED:
                self._exact.clear()
            exact = self._exact[task_set] = self._asked(task_set)
        return exact

    def by_workload(self, task_set: WorkloadMultiset) -> dict[int, int]:
        """`exact`, by the number of the workload."""
        exact = zip(task_set, self.exact(task_set), strict=True)
        return {workload: ppm for (workload, _), ppm in exact}

    def _asked(self, task_set: WorkloadMultiset) -> tuple[int, ...]:
        whole = self.names(task_set)
        looked_up = []
        for number, _ in task_set:
            name = self._names[number]
            index = whole.index(name)
            entry = name, (*whole[:index], *whole[index + 1 :])
            looked_up.append(throughput_beside(self._look_up, entry, self._default_ppm))
        return tuple(looked_up)

    def names(self, task_set: WorkloadMultiset) -> tuple[Workload, ...]:
        """The sorted workload of every task of a set."""
        names = self._names
        return tuple(sorted([names[number] for number, tasks in task_set for _ in range(tasks)]))


class JoinLosses(NamedTuple):
    """Throughput lost by all tasks if one more task joined a set, in millionths.

    Attributes:
        newcomer: Loss of the task that joins, by its workload.
        members: Loss of a task of each workload of the set (rows, in the order of the set), by the
            workload of the task that joins (columns).
    """

    newcomer: Ints
    members: Ints


def _mates(label: Workload, other: Workload) -> tuple[Workload, Workload] | None:
    """The workloads of two labels if they are those of one gang that is to be alone."""
    gang, _, workload = label.removeprefix(f"{UNPROFILED}\0").partition("\0")
    whose, _, others = other.removeprefix(f"{UNPROFILED}\0").partition("\0")
    return (Workload(workload), Workload(others)) if gang == whose != "" else None


class ThroughputModel(ExactThroughput):
    """Normalised throughput of task sets over a fixed list of workloads, in millionths.

    Workloads are numbered in the order of their names.

    Args:
        observations: The observed throughput.
        workloads: Every workload that may be used.
        default_ppm: Pairwise throughput of workloads never observed together.

    Attributes:
        index: The number of each workload.
        pairs: Throughput of each workload (row) beside one task of another (column).
    """

    def __init__(
        self, observations: ObservationIndex, workloads: Iterable[Workload], default_ppm: int
    ) -> None:
        names = sorted(set(workloads))
        super().__init__(observations.values.get, default_ppm, names)
        self._observations = observations
        self.pairs: Ints = np.full((len(names), len(names)), default_ppm, dtype=np.int64)
        alone = [label for label in self.index if label.startswith(UNPROFILED)]
        for label in alone:
            self.pairs[self.index[label], :] = self.pairs[:, self.index[label]] = 1
        for label, other in product(alone, repeat=2):
            if (mates := _mates(label, other)) is not None:
                seen = observations.pairs.get(mates[0], {}).get(mates[1], default_ppm)
                harmless = MILLION if seen >= default_ppm else 1
                self.pairs[self.index[label], self.index[other]] = harmless
        for workload in self.index.keys() & observations.pairs.keys():
            beside = observations.pairs[workload]
            for other in self.index.keys() & beside.keys():
                self.pairs[self.index[workload], self.index[other]] = beside[other]
        self._powers: dict[tuple[int, int], Ints] = {}
        self._after_join: dict[WorkloadMultiset, JoinLosses] = {}

    def _asked(self, task_set: WorkloadMultiset) -> tuple[int, ...]:
        """Throughput of each workload of a set, whose numbers are in the order of names."""
        whole, looked_up, rows = self.names(task_set), [], self._rows
        for number, _ in task_set:
            name = self._names[number]
            index = whole.index(name)
            seen = self._look_up((name, (*whole[:index], *whole[index + 1 :])))
            if seen is None:
                row = rows[number]
                seen = estimated(
                    [(row[other], count) for other, count in without_one(task_set, number)]
                )
            looked_up.append(seen)
        return tuple(looked_up)

    @cached_property
    def _rows(self) -> list[list[int]]:
        """`pairs` as Python's integers, which are faster one by one."""
        rows: list[list[int]] = self.pairs.tolist()
        return rows

    @cached_property
    def harmless(self) -> bool:
        """Whether no task slows another one down, as far as is known."""
        return bool((self.pairs == MILLION).all()) and all(
            ppm == MILLION for _, _, ppm in self.larger_sets
        )

    @cached_property
    def fractions(self) -> Floats:
        """`pairs` as fractions of standalone throughput."""
        return self.pairs / MILLION

    @cached_property
    def pairwise(self) -> PairwiseThroughput:
        """An approximation for filling many instances at once: what pairs alone say."""
        return PairwiseThroughput(self.pairs)

    def after_join(self, task_set: WorkloadMultiset) -> JoinLosses:
        """Losses of all tasks if one more task joined a set, for every workload of that task."""
        losses = self._after_join.get(task_set)
        if losses is None:
            if len(self._after_join) >= _TASK_SETS_REMEMBERED:
                self._after_join.clear()
            newcomer, members = self._estimate_after(task_set)
            row = {workload: number for number, (workload, _) in enumerate(task_set)}
            for name, whose, ppm in self._observations.arrivals(self.names(task_set)):
                joining = self.index.get(name)
                if joining is None:
                    continue
                workload = self.index[whose]
                if joining == workload:
                    newcomer[workload] = ppm
                if workload in row:
                    members[row[workload], joining] = ppm
            losses = JoinLosses(MILLION - newcomer, MILLION - members)
            self._after_join[task_set] = losses
        return losses

    @cached_property
    def larger_sets(self) -> list[tuple[int, WorkloadMultiset, int]]:
        """Observed throughput beside several others: workload, the others, throughput."""
        names, index = frozenset(self._names), self.index
        return [
            (index[workload], multiset(index[name] for name in others), ppm)
            for (workload, others), ppm in self._observations.table.observed
            if len(others) > 1 and workload in names and names.issuperset(others)
        ]

    def _estimate_after(self, task_set: WorkloadMultiset) -> tuple[Ints, Ints]:
        """Estimate everyone's throughput after a join by pairs, in the order of the names."""
        size = len(self.pairs)
        newcomer: Ints = np.full(size, MILLION, dtype=np.int64)
        members: Ints = np.full((len(task_set), size), MILLION, dtype=np.int64)
        present = np.array([workload for workload, _ in task_set], dtype=np.int64)
        joining = np.arange(size)
        # A workload that is new to the set enters the product at its place in the order.
        place = np.searchsorted(present, joining)
        place[present] = -1
        for row, (other, tasks) in enumerate(task_set):
            newcomer = times(newcomer, self._power(other, tasks))
            self._multiply_new(members, present, place == row)
            # A task does not disturb itself: its own workload counts one less.
            factor, grown = self._power(other, tasks)[present], self._power(other, tasks + 1)
            grown = grown[present]
            factor[row], grown[row] = self._power(other, tasks - 1)[other], factor[row]
            same = times(members[:, other], grown)
            members = times(members, factor[:, np.newaxis])
            members[:, other] = same
        self._multiply_new(members, present, place == len(task_set))
        return newcomer, members

    def _multiply_new(self, members: Ints, present: Ints, columns: npt.NDArray[np.bool_]) -> None:
        if columns.any():
            members[:, columns] = times(members[:, columns], self.pairs[present][:, columns])

    def _power(self, other: int, tasks: int) -> Ints:
        """Throughput of each workload beside so many tasks of `other`, by pairs."""
        power = self._powers.get((other, tasks))
        if power is None:
            power = np.full(len(self.pairs), MILLION, dtype=np.int64)
            self._powers[other, 0] = power
            for exponent in range(1, tasks + 1):
                power = times(power, self.pairs[:, other])
                self._powers[other, exponent] = power
        return power


def multiset(workloads: Iterable[int]) -> WorkloadMultiset:
    """Count the tasks of each workload."""
    counts: dict[int, int] = {}
    for workload in workloads:
        counts[workload] = counts.get(workload, 0) + 1
    return tuple(sorted(counts.items()))


def without_one(task_set: WorkloadMultiset, workload: int) -> WorkloadMultiset:
    """The set with one task less of a workload that is in it."""
    return tuple((w, n - (w == workload)) for w, n in task_set if n > 1 or w != workload)
