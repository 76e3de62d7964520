"""How a fleet is divided: the part of its time that each job is to have on each type.

That is the matrix X of Gavel (Narayanan et al., OSDI 2020). A job is on one type at a time, so its
parts come to 1 at most; and what all jobs hold of a type is no more than there is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from eva_master.model.resources import NOTHING, Resources
from eva_master.packing.lp.least_time import Need, parts_taken, scarce
from eva_master.packing.lp.solver import (
    DUAL_SIMPLEX,
    INFINITY,
    Entries,
    add_columns,
    add_rows,
    solver,
)
from eva_wire.values.ids import Family

Capacity = Mapping[Family, Resources]
Parts = dict[Family, float]
"""Of one job: the part of its time that it is to have on each type, none of them 0."""
Divide = Callable[[Sequence[Need], Capacity], list[Parts]]
"""Divides a fleet among jobs, each of which takes something and can run on one of the types."""
_LEAST = 1e-7
"""A part or a dual that is smaller than this is what computing leaves over."""
_LONGEST = 1e6
"""A job that takes less than one in so many of the longest one's time counts as taking that."""
_LEVELS = 8
"""So often those that can have no more are told from the others."""


def max_min(needs: Sequence[Need], capacity: Capacity) -> list[Parts]:
    """Maximise the service of the job that is served worst; then of the next one, and so on.

    A job's service is its speed, relative to the speed if its time on each type were in proportion
    to the type's capacity, times the part of the fleet that it takes: a job that takes twice as
    much is to have half of the time.

    Args:
        needs: The jobs.
        capacity: Capacity of the fleet, by type.

    Returns:
        The parts of each job.
    """
    lp = _Division(needs, capacity, [_served(need, capacity) for need in needs])
    level, open_jobs = lp.solved(), set(range(len(needs)))
    for _ in range(_LEVELS):
        held = open_jobs & set(level.binding)
        open_jobs -= held
        if not held or not open_jobs:
            break
        lp.keep(held, level.least)
        level = lp.solved()
    return lp.parts(level)


def makespan(needs: Sequence[Need], capacity: Capacity) -> list[Parts]:
    """Were the division to last, the last job would end as soon as can be.

    Args:
        needs: The jobs.
        capacity: All that there is, by type.

    Returns:
        The parts of each job.
    """
    longest = max((min(need.alone_ms.values()) for need in needs), default=1.0)
    scores = [
        {family: min(longest / ms, _LONGEST) for family, ms in need.alone_ms.items()}
        for need in needs
    ]
    lp = _Division(needs, capacity, scores)
    return lp.parts(lp.solved())


def max_sum(needs: Sequence[Need], capacity: Capacity) -> list[Parts]:
    """Maximise the jobs' total time, relative to their fastest types.

    A job's weight is the part of the fleet that it takes.

    Args:
        needs: The jobs.
        capacity: Capacity of the fleet, by type.

    Returns:
        The parts of each job.
    """
    scores = []
    for need in needs:
        weight = _taken(need, capacity) * need.count * min(need.alone_ms.values())
        scores.append({family: weight / ms for family, ms in need.alone_ms.items()})
    most = max((max(score.values()) for score in scores), default=1.0)
    lp = _Division(needs, capacity, None)
    lp.gain([{family: each / most for family, each in score.items()} for score in scores])
    return lp.parts(lp.solved())


def _served(need: Need, capacity: Capacity) -> dict[Family, float]:
    """Service of a job that is on a type all the time."""
    rooms = {family: 1.0 / _most(need.demand[family], capacity[family]) for family in need.alone_ms}
    even = sum(rooms[family] / ms for family, ms in need.alone_ms.items()) / sum(rooms.values())
    taken = _taken(need, capacity)
    return {family: taken / (ms * even) for family, ms in need.alone_ms.items()}


def _taken(need: Need, capacity: Capacity) -> float:
    """Part of the whole fleet that a job takes."""
    total = sum(capacity.values(), NOTHING)
    return max(_most(need.demand[family], total) for family in need.alone_ms)


def _most(demand: Resources, there: Resources) -> float:
    """Part that is taken of the most used resource."""
    return max((part for _, part in parts_taken(demand, there)), default=0.0)


@dataclass(frozen=True, slots=True)
class _Solution:
    """Solution of the LP.

    Attributes:
        least: Lower bound of the jobs' scores.
        binding: Jobs that keep the bound from being higher.
        amounts: The parts of the jobs, one after the other.
    """

    least: float
    binding: tuple[int, ...]
    amounts: Sequence[float]


class _Division:
    """The LP of a division.

    Its rows are the capacity of each type, the whole time of each job, and the score of each job
    against the variable to maximise, which is the least of the scores.

    Args:
        needs: The jobs.
        capacity: Capacity of the fleet, by type.
        scores: Score of each job for being on a type all the time; `None` if the least does not
            matter.
    """

    def __init__(
        self,
        needs: Sequence[Need],
        capacity: Capacity,
        scores: Sequence[Mapping[Family, float]] | None,
    ) -> None:
        self._needs = needs
        self._lp = lp = solver()
        lp.setOptionValue("simplex_strategy", DUAL_SIMPLEX)
        rows = {row: number for number, row in enumerate(scarce(needs, capacity))}
        self._targets = len(rows) + len(needs)
        limits = np.ones(self._targets)
        free = np.full(len(needs), INFINITY)
        add_rows(
            lp,
            np.concatenate([np.full(self._targets, -INFINITY), np.zeros(len(needs))]),
            np.concatenate([limits, free]),
        )
        targets = [self._targets + number for number in range(len(needs))]
        add_columns(lp, [(-1.0 if scores else 0.0, targets, [-1.0] * len(needs))])
        add_columns(lp, list(self._columns(capacity, rows, scores)))

    def _columns(
        self,
        capacity: Capacity,
        rows: Mapping[tuple[Family, int], int],
        scores: Sequence[Mapping[Family, float]] | None,
    ) -> Iterator[Entries]:
        for number, need in enumerate(self._needs):
            for family in need.alone_ms:
                parts = parts_taken(need.demand[family], capacity[family])
                taken = {
                    rows[family, resource]: part
                    for resource, part in parts
                    if (family, resource) in rows
                }
                entries = {row: part * need.count for row, part in taken.items()}
                entries[len(rows) + number] = 1.0
                if scores is not None:
                    entries[self._targets + number] = scores[number][family]
                yield 0.0, list(entries), list(entries.values())

    def gain(self, gains: Sequence[Mapping[Family, float]]) -> None:
        """Let the sum of parts times gains be large instead of the least."""
        column = 1
        for number, need in enumerate(self._needs):
            for family in need.alone_ms:
                self._lp.changeColCost(column, -gains[number][family])
                column += 1
        self._lp.changeColBounds(0, 0.0, 0.0)

    def keep(self, jobs: Iterable[int], least: float) -> None:
        """Some jobs are to have as much as they have, and no longer count for the least."""
        for job in sorted(jobs):
            row = self._targets + job
            self._lp.changeCoeff(row, 0, 0.0)
            self._lp.changeRowBounds(row, least * (1.0 - _LEAST), INFINITY)

    def solved(self) -> _Solution:
        """Solve it; there is a solution, since nobody has to have anything."""
        self._lp.run()
        solution = self._lp.getSolution()
        duals = np.abs(np.array(solution.row_dual[self._targets :]))
        binding = np.flatnonzero(duals > _LEAST).tolist()
        return _Solution(solution.col_value[0], tuple(binding), solution.col_value[1:])

    def parts(self, found: _Solution) -> list[Parts]:
        """The parts of each job."""
        amounts = iter(found.amounts)
        divided = [{family: next(amounts) for family in need.alone_ms} for need in self._needs]
        return [
            {family: min(1.0, part) for family, part in of.items() if part > _LEAST}
            for of in divided
        ]
