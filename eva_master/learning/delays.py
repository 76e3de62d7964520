"""How long starts, stops and launches take, as the cluster measured them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from eva_master.learning.bounds import bounded
from eva_master.learning.estimate import MeasuredEstimate, taken
from eva_master.model.planning.plan import Json
from eva_master.model.values import quick
from eva_wire.values.ids import Millis

_NEVER_DOUBTED_MS = 1_000
"""Delays that differ by less are never doubted, however small they are."""
_FADES = 400
"""The recent maximum fades by one part in this many with each measurement, so that about one
measurement in a hundred is slower.
"""
_AT_MOST_TIMES = 3
"""A measurement above this many times the expectation counts as an accident."""
_MEASUREMENTS_BEFORE_HINT = 3
"""With this many measurements a user's hint no longer counts."""


class Delay(StrEnum):
    """A kind of wait that is measured."""

    CHECKPOINT = "checkpoint"
    """From a stop to the exit with a newer checkpoint, of a workload."""
    START = "start"
    """From a start to the first step, of a workload."""
    ACQUISITION = "acquisition"
    """From a launch to an instance that is billed, of an instance type."""
    SETUP = "setup"
    """From there to its worker's registration, of an instance type."""
    IMAGE = "image"
    """Fetch or build of the first image on a new instance, of an instance type."""


OF_TYPES = frozenset({Delay.ACQUISITION, Delay.SETUP, Delay.IMAGE})
"""Delays of instance types; the others are of workloads."""


@quick
@dataclass(frozen=True, slots=True)
class DelayTable:
    """Measured delays, as estimates and recent maxima.

    Attributes:
        known: Estimates in milliseconds, by kind and by name of the workload or the instance type.
        slow: The recent maxima in milliseconds, by the same keys.
    """

    known: Mapping[tuple[Delay, str], MeasuredEstimate] = field(default_factory=dict)
    slow: Mapping[tuple[Delay, str], int] = field(default_factory=dict)

    def lookup(self, kind: Delay, name: str, *, hint: int | None, default: int) -> int:
        """The delay to reckon with, in milliseconds.

        Three measurements take precedence over a hint, a hint over fewer measurements, and both
        over the default. A measured delay has two significant digits, so that noise causes no new
        plans.

        Args:
            kind: Kind of the delay.
            name: Name of the workload or the instance type.
            hint: The user's, `None` if they gave none.
            default: The delay where nothing is known.
        """
        estimate = self.known.get((kind, name))
        if estimate is not None and (hint is None or estimate.samples >= _MEASUREMENTS_BEFORE_HINT):
            return two_digits(estimate.value)
        return default if hint is None else hint

    def slowest(self, kind: Delay, name: str, *, hint: int | None, default: int) -> int:
        """The delay that is exceeded in few cases, in milliseconds; see `lookup`."""
        expected = self.lookup(kind, name, hint=hint, default=default)
        slow = two_digits(self.slow.get((kind, name), 0))
        return max(expected, min(slow, _AT_MOST_TIMES * expected))

    def observe(self, kind: Delay, name: str, delay_ms: int, at: Millis) -> DelayTable:
        """Take in a measurement.

        Args:
            kind: Kind of the delay.
            name: Name of the workload or the instance type.
            delay_ms: Not negative.
            at: When it was over.
        """
        key = kind, name
        estimate = taken(self.known.get(key), delay_ms, at, _NEVER_DOUBTED_MS)
        slow = self.slow.get(key, 0)
        slow = max(delay_ms, slow - max(0, slow - estimate.value) // _FADES)
        table = DelayTable({**self.known, key: estimate}, {**self.slow, key: slow})
        estimates = bounded(table.known)
        return table if estimates is table.known else table.restricted(estimates)

    def relied_on(self, kind: Delay, name: str) -> tuple[int, bool] | None:
        """The part of the estimate that a look-up depends on: equal values give equal look-ups."""
        estimate = self.known.get((kind, name))
        if estimate is None:
            return None
        return two_digits(estimate.value), estimate.samples >= _MEASUREMENTS_BEFORE_HINT

    def measured(self, kind: Delay, name: str) -> int | None:
        """A measured delay to two digits, in milliseconds; `None` if it was never measured."""
        estimate = self.known.get((kind, name))
        return None if estimate is None else two_digits(estimate.value)

    def restricted(self, known: Mapping[tuple[Delay, str], MeasuredEstimate]) -> DelayTable:
        """Delays with some of the entries alone."""
        return DelayTable(known, {key: self.slow.get(key, 0) for key in known})

    def parted(self, kinds: Collection[Delay]) -> tuple[DelayTable, DelayTable]:
        """The delays of some kinds, and all others."""
        chosen = {key: estimate for key, estimate in self.known.items() if key[0] in kinds}
        others = {key: estimate for key, estimate in self.known.items() if key[0] not in kinds}
        return self.restricted(chosen), self.restricted(others)

    def to_json(self) -> Json:
        """The journal's form: a list of [kind, name, estimate, slowest]; 0 is left out."""
        return [
            [
                kind.value,
                name,
                estimate.to_json(),
                *([slow] if (slow := self.slow.get(key)) else []),
            ]
            for key, estimate in sorted(self.known.items())
            for kind, name in [key]
        ]

    @staticmethod
    def from_json(data: Json) -> DelayTable:
        """Read what `to_json` wrote.

        Raises:
            ValueError: The data has another form.
        """
        if not isinstance(data, list):
            raise ValueError("learned delays are a list")
        estimates: dict[tuple[Delay, str], MeasuredEstimate] = {}
        slow: dict[tuple[Delay, str], int] = {}
        for row in data:
            match row:
                case [str(kind), str(name), list(estimate), *rest]:
                    key = Delay(kind), name
                    estimates[key] = MeasuredEstimate.from_json(estimate)
                    # Journals of earlier releases have none.
                    slow[key] = rest[0] if rest and isinstance(rest[0], int) else 0
                case _:
                    raise ValueError(f"not a learned delay: {row!r}")
        return DelayTable(estimates, slow)


def two_digits(value: int) -> int:
    """Round a positive integer to two significant digits."""
    unit = int(10 ** max(0, len(str(value)) - 2))
    return (value + unit // 2) // unit * unit
