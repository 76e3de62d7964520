"""What a policy makes of the co-location table: what one workload teaches about another."""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache

import numpy as np

from eva_master.model.ids import MILLION, Workload, base_of
from eva_master.model.snapshot import ThroughputTable

Names = tuple[Workload, ...]
Entry = tuple[Workload, Names]

_PRIOR = 0.02
"""Weight of the default against an observation."""
_LEAST = 10_000
"""The least that a pair is believed to run at without having been seen, in millionths."""


@lru_cache(maxsize=8)
def by_base(table: ThroughputTable) -> ThroughputTable:
    """Let the variants of a workload (``resnet18[3]``, ``resnet18[7]``) teach each other.

    What was observed of variants of the same multiset is averaged.
    """
    seen: dict[Entry, list[int]] = {}
    for entry, ppm in table.observed:
        seen.setdefault(_base_entry(entry), []).append(ppm)
    return ThroughputTable(
        tuple((entry, sum(each) // len(each)) for entry, each in sorted(seen.items()))
    )


@lru_cache(maxsize=65_536)
def _base_entry(entry: Entry) -> Entry:
    workload, others = entry
    return base_of(workload), tuple(sorted(map(base_of, others)))


@lru_cache(maxsize=8)
def with_pairs(table: ThroughputTable, default_ppm: int) -> ThroughputTable:
    """Add pairs that were never seen alone, but in larger company.

    A set's throughput is held to be the product of its pairs', so its logarithm is a sum. The
    pairs of a workload that are not known are those that fit its sets best by least squares, with
    a weak pull towards the default.
    """
    of: dict[Workload, list[tuple[Names, int]]] = {}
    for (workload, others), ppm in table.observed:
        of.setdefault(workload, []).append((others, ppm))
    found: dict[Entry, int] = {}
    for workload, seen in of.items():
        for other, ppm in _pairs(tuple(seen), default_ppm):
            found[workload, (other,)] = ppm
    if not found:
        return table
    return ThroughputTable(tuple(sorted({**dict(table.observed), **found}.items())))


@lru_cache(maxsize=1024)
def _pairs(
    observed: tuple[tuple[Names, int], ...], default_ppm: int
) -> tuple[tuple[Workload, int], ...]:
    """The pairs of one workload that were not seen alone.

    Args:
        observed: Its throughput, by the others on the instance.
        default_ppm: Of what was never seen at all.
    """
    known = {others[0]: ppm for others, ppm in observed if len(others) == 1}
    seen = [(others, ppm) for others, ppm in observed if len(others) > 1]
    unknown = sorted({other for others, _ in seen for other in others if other not in known})
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
                right[row] -= count * math.log(known[other] / MILLION)
    pull = _PRIOR * np.identity(len(unknown))
    prior = _PRIOR * math.log(default_ppm / MILLION)
    logs = np.linalg.solve(matrix.T @ matrix + pull, matrix.T @ right + prior)
    return tuple(
        (other, max(round(math.exp(min(value, 0.0)) * MILLION), _LEAST))
        for other, value in zip(unknown, logs.tolist(), strict=True)
    )
