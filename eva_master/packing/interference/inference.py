"""Inference from the co-location table: variants and larger sets teach about pairs."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial

import numpy as np

from eva_master.model.planning.snapshot import ThroughputTable
from eva_master.packing.incremental.view import IncrementalView
from eva_wire.values.ids import MILLION, Workload, base_of

Names = tuple[Workload, ...]
Entry = tuple[Workload, Names]
Row = tuple[Entry, int]
Averaged = tuple[Mapping[Entry, tuple[int, int]], ThroughputTable]
"""Sum and number of the observations of each entry's variants; and the table of means."""

_BASE_ENTRIES_KEPT = 65_536
"""Entries whose base workloads are remembered."""
_DEFAULT_WEIGHT = 0.02
"""Weight of the default against an observation."""
_LEAST_INFERRED_PPM = 10_000
"""The least throughput that is inferred for a pair that was not seen alone, in millionths."""


def averaged_view() -> IncrementalView[Row, Averaged]:
    """Follows a table with the means of what was observed of a workload's variants."""
    base_entry = lru_cache(maxsize=_BASE_ENTRIES_KEPT)(_base_entry)
    return IncrementalView[Row, Averaged](({}, ThroughputTable()), partial(_averaged, base_entry))


def _averaged(
    base_entry: Callable[[Entry], Entry],
    before: Averaged,
    _: tuple[Row, ...],
    gone: list[Row],
    new: list[Row],
) -> Averaged:
    """Remove rows from the means, and add others."""
    sums, touched = dict(before[0]), set[Entry]()
    for sign, rows in ((-1, gone), (1, new)):
        for entry, ppm in rows:
            base = base_entry(entry)
            total, number = sums.get(base, (0, 0))
            sums[base] = total + sign * ppm, number + sign
            touched.add(base)
    means = list(before[1].observed)
    for base in touched:
        total, number = sums[base]
        index = bisect_left(means, base, key=_entry)
        exists = index < len(means) and means[index][0] == base
        if not number:
            del sums[base]
        mean = [(base, total // number)] if number else []
        if means[index : index + exists] != mean:
            means[index : index + exists] = mean
    return sums, ThroughputTable(tuple(means))


def _entry(row: Row) -> Entry:
    return row[0]


def _workload(row: Row) -> Workload:
    return row[0][0]


def _base_entry(entry: Entry) -> Entry:
    workload, others = entry
    return base_of(workload), tuple(sorted(map(base_of, others)))


def inferred_view(default_ppm: int) -> IncrementalView[Row, ThroughputTable]:
    """Follows a table with the pairs that are inferred from larger sets."""
    return IncrementalView(ThroughputTable(), partial(_with_inferred, default_ppm))


def _with_inferred(
    default_ppm: int,
    before: ThroughputTable,
    rows: tuple[Row, ...],
    gone: list[Row],
    new: list[Row],
) -> ThroughputTable:
    """Infer the pairs of workloads whose rows have changed."""
    inferred = list(before.observed)
    for workload in {*map(_workload, gone), *map(_workload, new)}:
        seen = rows[slice(*_span(rows, workload))]
        pairs = _pairs([(others, ppm) for (_, others), ppm in seen], default_ppm)
        first, last = _span(inferred, workload)
        # Unchanged rows stay the same objects, so that callers can compare by identity.
        unchanged = {row: row for row in inferred[first:last]}
        every = sorted((*seen, *(((workload, (other,)), ppm) for other, ppm in pairs)))
        inferred[first:last] = [unchanged.get(row, row) for row in every]
    return ThroughputTable(tuple(inferred))


def _span(rows: Sequence[Row], workload: Workload) -> tuple[int, int]:
    """From where to where the rows of a workload are."""
    first = bisect_left(rows, workload, key=_workload)
    return first, bisect_right(rows, workload, lo=first, key=_workload)


def _pairs(
    observed: Sequence[tuple[Names, int]], default_ppm: int
) -> tuple[tuple[Workload, int], ...]:
    """Throughput of one workload beside workloads that were only observed in larger sets.

    Args:
        observed: Its throughput, by the others on the instance.
        default_ppm: Throughput of pairs never observed at all.
    """
    pair_ppm = {others[0]: ppm for others, ppm in observed if len(others) == 1}
    seen = [(others, ppm) for others, ppm in observed if len(others) > 1]
    unknown = sorted({other for others, _ in seen for other in others if other not in pair_ppm})
    if not unknown:
        return ()
    column = {other: number for number, other in enumerate(unknown)}
    matrix, right = np.zeros((len(seen), len(unknown))), np.zeros(len(seen))
    for row, (others, ppm) in enumerate(seen):
        right[row] = math.log(ppm / MILLION)
        for other, count in sorted(Counter(others).items()):
            if other in column:
                matrix[row, column[other]] = count
            else:
                right[row] -= count * math.log(pair_ppm[other] / MILLION)
    pull = _DEFAULT_WEIGHT * np.identity(len(unknown))
    prior = _DEFAULT_WEIGHT * math.log(default_ppm / MILLION)
    logs = np.linalg.solve(matrix.T @ matrix + pull, matrix.T @ right + prior)
    return tuple(
        (other, max(round(math.exp(min(value, 0.0)) * MILLION), _LEAST_INFERRED_PPM))
        for other, value in zip(unknown, logs.tolist(), strict=True)
    )
