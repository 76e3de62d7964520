"""The last run times of jobs that have something in common, and what to expect by these alone.

That is how 3Sigma and its simpler rivals see the past: they use the values of the one feature whose
estimates were off least.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt

from eva_master.model.arithmetic.fixed_point import exp_of_ppm, log_ppm
from eva_master.model.planning.estimate import LONGEST_MS, Estimates
from eva_master.model.planning.plan import Json

KEPT = 400
"""Values kept per feature value, if any estimate needs them: 4.7 MiB if all are full."""
_BYTES = 3
_PPM = 2
"""Rounding of a value's logarithm, in millionths, so that it takes three bytes."""
_LARGEST = log_ppm(LONGEST_MS)
_RULES_REMEMBERED = 1_024
_UNIT = 10**30
_BY_VALUES = (Estimates.THREE_SIGMA, Estimates.POINT, Estimates.SLEARN_DAG)


def kept_for(mode: Estimates) -> int:
    """Of how many jobs of a feature value a kind of estimates needs the run times."""
    return KEPT if mode in _BY_VALUES else 0


@dataclass(frozen=True, slots=True)
class PastValues:
    """Mean run times of jobs, those that ended last standing last.

    Attributes:
        packed: Their logarithms, in units of two millionths, in three bytes each.
    """

    packed: bytes = b""

    @staticmethod
    def of(logs: Iterable[int]) -> PastValues:
        """The values that have these logarithms."""
        return PastValues(b"".join(map(_packed, logs)))

    @property
    def logs(self) -> tuple[int, ...]:
        """Their logarithms, in the order of the values."""
        return tuple(_unpacked(self.packed))

    def plus(self, log: int, kept: int) -> PastValues:
        """With one more, and the last so many of all; none if none are kept."""
        if not kept:
            return NO_VALUES
        return PastValues((self.packed + _packed(log))[-_BYTES * kept :])

    def usual_ms(self, mode: Estimates) -> int:
        """Expected run time of the next task, in milliseconds; there is at least one value.

        Args:
            mode: `Estimates.POINT` for the median, or `Estimates.THREE_SIGMA` for the run time at
                which 3Sigma's mean utility, which falls with the square of the run time, arrives.
        """
        return (_median_ms if mode is Estimates.POINT else _useful_ms)(self.packed)

    @staticmethod
    def from_json(data: Json) -> PastValues:
        """Read a list of logarithms.

        Raises:
            ValueError: The data has another form.
        """
        if not isinstance(data, list) or len(data) > KEPT:
            raise ValueError("past run times are a list of logarithms")
        logs = [log for log in data if type(log) is int and 0 <= log <= _LARGEST]
        if len(logs) != len(data):
            raise ValueError("past run times are logarithms")
        return PastValues.of(logs)


NO_VALUES = PastValues()


def _packed(log: int) -> bytes:
    return (min(max(0, log), _LARGEST) // _PPM).to_bytes(_BYTES, "little")


def _unpacked(packed: bytes) -> list[int]:
    starts = range(0, len(packed), _BYTES)
    return [_PPM * int.from_bytes(packed[at : at + _BYTES], "little") for at in starts]


@lru_cache(_RULES_REMEMBERED)
def _median_ms(packed: bytes) -> int:
    ordered = sorted(_unpacked(packed))
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return exp_of_ppm(ordered[middle])
    return (exp_of_ppm(ordered[middle - 1]) + exp_of_ppm(ordered[middle])) // 2


@lru_cache(_RULES_REMEMBERED)
def _useful_ms(packed: bytes) -> int:
    """The mean of one over the square, to the power of minus a half."""
    times = [max(1, exp_of_ppm(log)) for log in _unpacked(packed)]
    mean = sum(_UNIT // (time * time) for time in times) // len(times)
    return isqrt(_UNIT // max(1, mean))
