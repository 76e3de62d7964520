"""How fast elastic gangs are by their number of members: stated, measured or inferred.

This module is the only source of these speeds. Stated rates take precedence over measured ones, and
these over inferred ones: the speed grows with a power of the number of members. The power is fitted
to the known rates, and drawn to the usual one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eva_master.learning.bounds import bounded
from eva_master.learning.estimate import MeasuredEstimate, taken
from eva_master.model.arithmetic.fixed_point import log_ppm
from eva_master.model.planning.elastic import Scaling
from eva_master.model.planning.plan import Json
from eva_wire.values.ids import MILLION, Family, Millis, Workload

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
    """Known and inferred speeds of a gang.

    Args:
        stated: Rates stated by the user; valid on every family and for every placement of the
            members.
        measured: Rates of its workload on one family.
        apart: Whether members are on several instances.
    """
    rates = tuple(sorted({**dict(measured), **dict(stated)}.items()))
    return Scaling(rates, _exponent_ppm(rates, _APART_PPM if apart else _TOGETHER_PPM))


def speed_ppm(stated: Points, measured: Points, members: int, *, apart: bool) -> int:
    """Speed of so many members against one, in millionths, by `scaling`."""
    rates = {**dict(measured), **dict(stated)}
    if members in rates and 1 in rates:
        return max(1, rates[members] * MILLION // rates[1])
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
    """Measured rates of elastic gangs that shared their instances with no other job.

    Attributes:
        rates: Iterations per second, in millionths.
        known: The rates that policies use, rounded.
    """

    rates: Mapping[Key, MeasuredEstimate] = field(default_factory=dict)
    known: Mapping[Key, int] = field(default_factory=dict)

    def points(self, workload: Workload, family: Family, *, apart: bool) -> Points:
        """Rates of a workload on a family that policies use."""
        return tuple(
            sorted(
                (key[2], rate)
                for key, rate in self.known.items()
                if (key[0], key[1], key[3]) == (workload, family, apart)
            )
        )

    def observe(self, key: Key, rate: float, at: Millis) -> ScalingTable:
        """Record one window of a gang that shared its instances with no other job.

        Args:
            key: Its workload, family, number of members, and whether they are apart.
            rate: Iterations per second over the window, finite; rates below one in a million
                seconds teach nothing.
            at: When the window ended.

        Returns:
            The table; its `known` is the same object unless it changes.
        """
        sample = round(rate * MILLION)
        if sample <= 0:
            return self
        estimate = taken(self.rates.get(key), sample, at)
        rates = bounded({**self.rates, key: estimate})
        used = self.known.get(key)
        if used is not None and abs(estimate.value - used) * _NEWS_FROM_PART < used:
            return ScalingTable(rates, self.known)
        used_rates = {**self.known, key: _rounded(estimate.value)}
        return ScalingTable(
            rates, {entry: used_rates[entry] for entry in sorted(used_rates) if entry in rates}
        )

    def restricted(self, rates: Mapping[Key, MeasuredEstimate]) -> ScalingTable:
        """The table with some of its entries alone."""
        return ScalingTable(rates, {key: rate for key, rate in self.known.items() if key in rates})

    def to_json(self) -> Json:
        """The journal's form: a list of [workload, family, members, apart, estimate, known]."""
        return [
            [*key, estimate.to_json(), self.known.get(key, estimate.value)]
            for key, estimate in sorted(self.rates.items())
        ]

    @staticmethod
    def from_json(data: Json) -> ScalingTable:
        """Read what `to_json` wrote.

        Raises:
            ValueError: The data has another form.
        """
        if not isinstance(data, list):
            raise ValueError("a table of gangs' speeds is a list")
        rates: dict[Key, MeasuredEstimate] = {}
        used: dict[Key, int] = {}
        for row in data:
            match row:
                case [str(workload), str(family), int(members), bool(apart), list(it), int(told)]:
                    key = Workload(workload), Family(family), members, apart
                    rates[key], used[key] = MeasuredEstimate.from_json(it), max(1, told)
                case _:
                    raise ValueError(f"not an entry of gangs' speeds: {row!r}")
        return ScalingTable(rates, used)


def _rounded(value: int) -> int:
    unit = int(10 ** max(0, len(str(value)) - _SIGNIFICANT_DIGITS))
    return max(1, (value + unit // 2) // unit * unit)
