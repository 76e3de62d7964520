"""Prices of GPUs (Hadar, equations (5) to (7)).

A GPU of a server costs `low` while the server is empty, so that anything is admitted, and `high`
when it is full, so that nothing is. Between them the price grows exponentially.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from eva_policies.hadar_published.requests import GpuRequest, Utility, weight, worth
from eva_wire.values.ids import Family

_SPAN = 1e100
"""A GPU of a full server costs at most so many times that of an empty one."""


@dataclass(frozen=True, slots=True)
class Extremes:
    """Extremes over the jobs that could run on a GPU type.

    Attributes:
        high: The most utility per GPU of any of them, alone on its fastest type from its arrival
            on.
        low: The least utility at the horizon, per GPU and second on its slowest type.
        least_s: The least GPU time in seconds of any of them on its slowest type.
    """

    high: float
    low: float
    least_s: float

    def and_also(self, other: Extremes) -> Extremes:
        """Extremes over two sets of jobs together."""
        return Extremes(
            max(self.high, other.high), min(self.low, other.low), min(self.least_s, other.least_s)
        )


def extremes(
    asks: Iterable[GpuRequest], utility: Utility, horizon_s: float
) -> dict[Family, Extremes]:
    """Extremes over some jobs, by GPU type.

    Args:
        asks: The jobs.
        utility: Utility of jobs.
        horizon_s: T: assumed upper limit of the time from a job's arrival to its end.
    """
    by_family: dict[Family, Extremes] = {}
    for ask in asks:
        slowest_s = ask.takes_s(min(ask.rates.values()))
        weight_of = weight(ask, utility)
        for family in ask.rates:
            gpus = ask.tasks * ask.gpus[family]
            own = Extremes(
                worth(weight_of, ask.fastest_s) / gpus,
                worth(weight_of, horizon_s) / (slowest_s * gpus),
                slowest_s * gpus,
            )
            by_family[family] = own.and_also(by_family.get(family, own))
    return by_family


@dataclass(frozen=True, slots=True)
class PriceRange:
    """Prices of the GPUs of a type.

    Attributes:
        low: While the server is empty.
        high: When it is full.
    """

    low: float
    high: float

    def at(self, used: int, capacity: int) -> float:
        """The price on a server of which so many GPUs are used."""
        return float(self.low * (self.high / self.low) ** (used / capacity))


def price_ranges(
    found: Mapping[Family, Extremes], capacity: Mapping[Family, int], eta: float | None
) -> dict[Family, PriceRange]:
    """The price range of each type.

    Args:
        found: Extremes over the jobs that could run there.
        capacity: Number of GPUs, by type.
        eta: The scale of the lowest price; `None` for the least that the paper's bound allows: so
            large that the GPU time of the smallest job is that of the whole fleet.
    """
    fleet = sum(capacity.values())
    ranges = {}
    for family in sorted(capacity.keys() & found.keys()):
        extreme = found[family]
        scale = extreme.least_s / fleet if eta is None else 1 / eta
        low = min(extreme.high, extreme.low * scale / 4)
        ranges[family] = PriceRange(max(low, extreme.high / _SPAN), extreme.high)
    return ranges


def curve(prices: PriceRange, capacity: int) -> Sequence[float]:
    """The price on a server of so many GPUs, by how many of them are free."""
    return [prices.at(capacity - free, capacity) for free in range(capacity + 1)]
