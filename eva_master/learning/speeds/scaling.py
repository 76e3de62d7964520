"""How fast elastic gangs are by their number of members: stated, measured or inferred.

This is the one place that says so. What the user states of a number of members goes before what was
measured, and that before what is inferred: the speed grows with a power of the number of members.
The power is fitted to what is known, and drawn to what is usual.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from eva_master.learning.bounds import bounded
from eva_master.learning.estimate import Estimate, taken
from eva_master.model.arithmetic.fixed_point import log_ppm
from eva_master.model.ids import MILLION, Family, Millis, Workload
from eva_master.model.planning.elastic import Scaling
from eva_master.model.planning.plan import Json

Key = tuple[Workload, Family, int, bool]
"""Workload, family, number of members, and whether they are on several instances."""
Points = tuple[tuple[int, int], ...]
"""Numbers of members and iterations per second, in millionths; in order."""

_TOGETHER_PPM, _APART_PPM = 900_000, 850_000
"""The power where nothing is known: twice the members do 1.87 and 1.80 times as much. Data-parallel
training of ResNet-50 and the like on one machine, and over a network of 10 to 25 Gbit/s."""
_LEAST_PPM, _MOST_PPM = 0, 1_200_000
_PULL_PPM = 480_000
"""How hard the usual power pulls: as hard as one doubling that was measured, ln(2)^2."""
_NEWS_FROM_PART = 20
_SIGNIFICANT_DIGITS = 3


def scaling(stated: Points, measured: Points, *, apart: bool) -> Scaling:
    """What is known and inferred of a gang.

    Args:
        stated: By the user; holds on every family and however the members are placed.
        measured: Of its workload on one family.
        apart: Whether members are on several instances.
    """
    known = tuple(sorted({**dict(measured), **dict(stated)}.items()))
    return Scaling(known, _exponent_ppm(known, _APART_PPM if apart else _TOGETHER_PPM))


def speed_ppm(stated: Points, measured: Points, members: int, *, apart: bool) -> int:
    """How fast so many members are against one, in millionths, as `scaling` says."""
    known = {**dict(measured), **dict(stated)}
    if members in known and 1 in known:
        return max(1, known[members] * MILLION // known[1])
    return scaling(stated, measured, apart=apart).speed_ppm(members)


def _exponent_ppm(known: Points, usual: int) -> int:
    """Least squares of logarithms through the smallest known number, drawn to what is usual."""
    if len(known) < 2:
        return usual
    (first, base), *others = known
    square, product = _PULL_PPM, usual * _PULL_PPM // MILLION
    for members, rate in others:
        wider = log_ppm(members) - log_ppm(first)
        square += wider * wider // MILLION
        product += wider * (log_ppm(rate) - log_ppm(base)) // MILLION
    return min(_MOST_PPM, max(_LEAST_PPM, product * MILLION // square))


@dataclass(frozen=True, slots=True)
class ScalingTable:
    """What was measured of elastic gangs that shared their instances with nobody.

    Attributes:
        rates: Iterations per second, in millionths.
        known: What policies know of it, rounded.
    """

    rates: Mapping[Key, Estimate] = field(default_factory=dict)
    known: Mapping[Key, int] = field(default_factory=dict)

    def points(self, workload: Workload, family: Family, *, apart: bool) -> Points:
        """What is known of a workload on a family."""
        return tuple(
            sorted(
                (key[2], rate)
                for key, rate in self.known.items()
                if (key[0], key[1], key[3]) == (workload, family, apart)
            )
        )

    def observe(self, key: Key, rate: float, at: Millis) -> ScalingTable:
        """Take in one window of a gang that shared its instances with nobody.

        Args:
            key: Which.
            rate: Iterations per second over the window, finite; nothing is learned from less
                than one in a million seconds.
            at: When the window ended.

        Returns:
            The table; its `known` is the same value unless this is news.
        """
        sample = round(rate * MILLION)
        if sample <= 0:
            return self
        estimate = taken(self.rates.get(key), sample, at)
        rates = bounded({**self.rates, key: estimate})
        told = self.known.get(key)
        if told is not None and abs(estimate.value - told) * _NEWS_FROM_PART < told:
            return ScalingTable(rates, self.known)
        known = {**self.known, key: _rounded(estimate.value)}
        return ScalingTable(rates, {it: known[it] for it in sorted(known) if it in rates})

    def restricted(self, rates: Mapping[Key, Estimate]) -> ScalingTable:
        """The table with some of its entries alone."""
        return ScalingTable(rates, {key: rate for key, rate in self.known.items() if key in rates})

    def to_json(self) -> Json:
        """The journal's form: a list of [workload, family, members, apart, estimate, known]."""
        return [
            [*key, it.to_json(), self.known.get(key, it.value)]
            for key, it in sorted(self.rates.items())
        ]

    @staticmethod
    def from_json(data: Json) -> ScalingTable:
        """Read what `to_json` wrote.

        Raises:
            ValueError: The data has another form.
        """
        if not isinstance(data, list):
            raise ValueError("a table of gangs' speeds is a list")
        rates: dict[Key, Estimate] = {}
        known: dict[Key, int] = {}
        for row in data:
            match row:
                case [str(workload), str(family), int(members), bool(apart), list(it), int(told)]:
                    key = Workload(workload), Family(family), members, apart
                    rates[key], known[key] = Estimate.from_json(it), max(1, told)
                case _:
                    raise ValueError(f"not an entry of gangs' speeds: {row!r}")
        return ScalingTable(rates, known)


def _rounded(value: int) -> int:
    unit = int(10 ** max(0, len(str(value)) - _SIGNIFICANT_DIGITS))
    return max(1, (value + unit // 2) // unit * unit)


def families(points: Iterable[Key]) -> frozenset[Family]:
    """The families on which something was measured."""
    return frozenset(key[1] for key in points)
