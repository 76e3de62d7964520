"""The prices at which everything is in use, and the number of rounds of a batch.

Prices are told from the jobs of earlier batches, never from those that are asked for them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil, log

from eva_wire.values.ids import MILLION

LEAST_FULL = MILLION
"""Theta less one is a dollar at least (section 4.4)."""


@dataclass(frozen=True, slots=True)
class Full:
    """Price of one slot when everything is in use, in micro-dollars: theta less one.

    Attributes:
        gpu: Price of a GPU.
        ps: Price of a parameter server.
    """

    gpu: int = LEAST_FULL
    ps: int = LEAST_FULL

    def raised(self, others: Iterable[Full]) -> Full:
        """The maximum of these prices and others."""
        every = (self, *others)
        return Full(max(prices.gpu for prices in every), max(prices.ps for prices in every))

    def times(self, factor_ppm: int) -> Full:
        """The prices times so many millionths."""
        return Full(self.gpu * factor_ppm // MILLION, self.ps * factor_ppm // MILLION)


LEAST = Full()


def density(worth: int, gpu_slots: int, slots: int) -> Full:
    """Prices at which a job would not run: its worth per slot of a GPU, and of a server.

    Args:
        worth: Its worth at the earliest possible end, in micro-dollars.
        gpu_slots: GPUs times slots that it then uses.
        slots: Number of slots for which it then uses one parameter server.
    """
    return Full(-(-worth // max(1, gpu_slots)), -(-worth // max(1, slots)))


def rounds_of(worths: Iterable[int], full: Full) -> int:
    """Lambda of lemma 1, for jobs of given worths.

    Args:
        worths: Worths in micro-dollars; zeros do not count.
        full: The prices.
    """
    every = [amount for amount in worths if amount > 0]
    if len(every) < 2:
        return 1
    theta = [1 + amount / MILLION for amount in (full.gpu, full.ps)]
    ratio = 2 * sum(map(log, theta))
    if ratio <= 1:
        return 1
    return ceil((log(sum(every)) - log(min(every))) / (log(ratio) - log(ratio - 1))) + 1
