"""The rules of the Eva paper, written down slowly: what the fast code is compared with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import floor

from eva_wire.values.ids import Workload

Entries = Iterable[tuple[Workload, Sequence[Workload], int]]
"""Observations: workload, neighbours, throughput in millionths. A later one replaces another."""


def down(value: Fraction) -> Fraction:
    """Round down to a millionth."""
    return Fraction(floor(value * 10**6), 10**6)


def throughput_by_the_paper(
    entries: Entries, workload: Workload, others: Sequence[Workload], default_ppm: int
) -> int:
    """Section 4.3: what was recorded of this very set, or else the product of its pairs."""
    rows = list(entries)

    def seen(beside: Sequence[Workload]) -> Fraction | None:
        last = None
        for whose, company, ppm in rows:
            if whose == workload and Counter(company) == Counter(beside):
                last = Fraction(ppm, 10**6)
        return last

    whole = Fraction(1) if not others else seen(others)
    if whole is None:
        whole = Fraction(1)
        for name, tasks in sorted(Counter(others).items()):
            pair, factor = seen([name]), Fraction(1)
            for _ in range(tasks):
                factor = down(factor * (Fraction(default_ppm, 10**6) if pair is None else pair))
            whole = down(whole * factor)
    return int(whole * 10**6)
