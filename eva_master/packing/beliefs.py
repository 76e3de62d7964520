"""What a policy makes of the co-location table: what one workload teaches about another."""

from __future__ import annotations

import math
from collections import Counter
from functools import lru_cache

import numpy as np

from eva_master.model.ids import MILLION, Workload, base_of
from eva_master.model.snapshot import ThroughputTable

Entry = tuple[Workload, tuple[Workload, ...]]

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
    for (workload, others), ppm in table.observed:
        entry = base_of(workload), tuple(sorted(map(base_of, others)))
        seen.setdefault(entry, []).append(ppm)
    return ThroughputTable(
        tuple((entry, sum(each) // len(each)) for entry, each in sorted(seen.items()))
    )


@lru_cache(maxsize=8)
def with_pairs(table: ThroughputTable, default_ppm: int) -> ThroughputTable:
    """Add pairs that were never seen alone, but in larger company.

    A set's throughput is held to be the product of its pairs', so its logarithm is a sum. The
    pairs of a workload that are not known are those that fit its sets best by least squares, with
    a weak pull towards the default.
    """
    known = {entry: ppm for entry, ppm in table.observed if len(entry[1]) == 1}
    sets: dict[Workload, list[tuple[tuple[Workload, ...], int]]] = {}
    for (workload, others), ppm in table.observed:
        if len(others) > 1:
            sets.setdefault(workload, []).append((others, ppm))
    found: dict[Entry, int] = {}
    for workload, seen in sorted(sets.items()):
        unknown = sorted({o for others, _ in seen for o in others if (workload, (o,)) not in known})
        if not unknown:
            continue
        column = {other: number for number, other in enumerate(unknown)}
        matrix, right = np.zeros((len(seen), len(unknown))), np.zeros(len(seen))
        for row, (others, ppm) in enumerate(seen):
            right[row] = math.log(ppm / MILLION)
            for other, count in sorted(Counter(others).items()):
                if other in column:
                    matrix[row, column[other]] = count
                else:
                    right[row] -= count * math.log(known[workload, (other,)] / MILLION)
        pull = _PRIOR * np.identity(len(unknown))
        prior = _PRIOR * math.log(default_ppm / MILLION)
        logs = np.linalg.solve(matrix.T @ matrix + pull, matrix.T @ right + prior)
        for other, value in zip(unknown, logs.tolist(), strict=True):
            ppm = round(math.exp(min(value, 0.0)) * MILLION)
            found[workload, (other,)] = max(ppm, _LEAST)
    if not found:
        return table
    return ThroughputTable(tuple(sorted({**dict(table.observed), **found}.items())))
