"""The prices at which everything is in use, and the number of rounds of a batch.

Prices are told from the jobs of earlier batches, never from those that are asked for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, log

from eva_master.model.ids import MILLION

LEAST_FULL = MILLION
"""Theta less one is a dollar at least (section 4.4)."""


@dataclass(frozen=True, slots=True)
class Full:
    """What one slot costs when everything is in use, in micro-dollars: theta less one.

    Attributes:
        gpu: Of a GPU.
        ps: Of a parameter server.
    """

    gpu: int = LEAST_FULL
    ps: int = LEAST_FULL

    def raised(self, others: Iterable[Full]) -> Full:
        """The largest of these and others."""
        every = (self, *others)
        return Full(max(it.gpu for it in every), max(it.ps for it in every))

    def times(self, factor_ppm: int) -> Full:
        """So many millionths of it."""
        return Full(self.gpu * factor_ppm // MILLION, self.ps * factor_ppm // MILLION)


LEAST = Full()


def density(worth: int, gpu_slots: int, slots: int) -> Full:
    """At which prices a job would not run: what it is worth per slot of a GPU, and of a server.

    Args:
        worth: What it is worth when it is done as soon as it can be, in micro-dollars.
        gpu_slots: Of how many GPUs it then uses how many slots.
        slots: For how many slots it then uses one parameter server.
    """
    return Full(-(-worth // max(1, gpu_slots)), -(-worth // max(1, slots)))


def rounds_of(worths: Iterable[int], full: Full) -> int:
    """Lambda of lemma 1, for jobs that are worth so much.

    Args:
        worths: In micro-dollars; jobs that are worth nothing do not count.
        full: The prices.
    """
    every = [it for it in worths if it > 0]
    if len(every) < 2:
        return 1
    theta = [1 + it / MILLION for it in (full.gpu, full.ps)]
    ratio = 2 * sum(map(log, theta))
    if ratio <= 1:
        return 1
    return ceil((log(sum(every)) - log(min(every))) / (log(ratio) - log(ratio - 1))) + 1
