"""A figure learned from noisy measurements: robust, and following a changed world."""

from __future__ import annotations

from dataclasses import dataclass, replace

from eva_master.model.planning.plan import Json
from eva_master.model.values import quick
from eva_wire.values.ids import Millis

_MEASUREMENTS_AVERAGED = 8
"""A new measurement counts at least one part in so many, so old ones fade."""
_DOUBTED_FROM_FACTOR = 2
"""A measurement is doubted when it is more than so many times the estimate, or less than the
estimate divided by it."""
_DOUBTS_TO_REPLACE = 3
"""As many doubted measurements in a row, and it is the world that has changed."""


@quick
@dataclass(frozen=True, slots=True)
class MeasuredEstimate:
    """An estimate of one integer from its measurements.

    Attributes:
        value: The estimate, in the unit of the measurements.
        samples: Number of measurements behind it, without doubted ones.
        at_ms: When the last of these measurements was made.
        doubted: Later measurements that were too far off to be believed.
    """

    value: int
    at_ms: Millis
    samples: int = 1
    doubted: tuple[int, ...] = ()

    def taking(self, sample: int, at: Millis, slack: int = 0) -> MeasuredEstimate:
        """The estimate after one more measurement.

        The first eight are averaged, later ones count an eighth. A measurement that is far off is
        only remembered; the third in a row replaces the estimate by the median of the three.

        Args:
            sample: Not negative.
            at: When it was made.
            slack: A difference of up to so much is never far off.
        """
        if self._far(sample, slack):
            doubted = (*self.doubted, sample)
            if len(doubted) < _DOUBTS_TO_REPLACE:
                return replace(self, doubted=doubted)
            return MeasuredEstimate(
                sorted(doubted)[_DOUBTS_TO_REPLACE // 2], at, _DOUBTS_TO_REPLACE
            )
        weight = min(self.samples + 1, _MEASUREMENTS_AVERAGED)
        value = (self.value * (weight - 1) + sample + weight // 2) // weight
        return MeasuredEstimate(value, at, self.samples + 1)

    def _far(self, sample: int, slack: int) -> bool:
        low, high = sorted((sample, self.value))
        return high - low > slack and high > _DOUBTED_FROM_FACTOR * low

    def to_json(self) -> list[Json]:
        """The form in which the journal keeps it."""
        return [self.value, self.at_ms, self.samples, list(self.doubted)]

    @staticmethod
    def from_json(data: Json) -> MeasuredEstimate:
        """Read what `to_json` wrote.

        Raises:
            ValueError: The data has another form.
        """
        match data:
            case [int(value), int(at), int(samples), list(doubted)] if all(
                isinstance(sample, int) for sample in doubted
            ):
                return MeasuredEstimate(
                    value, Millis(at), samples, tuple(int(str(sample)) for sample in doubted)
                )
            case _:
                raise ValueError(f"not an estimate: {data!r}")


def taken(
    known: MeasuredEstimate | None, sample: int, at: Millis, slack: int = 0
) -> MeasuredEstimate:
    """The estimate after a measurement, be it the first; see `MeasuredEstimate.taking`."""
    return MeasuredEstimate(sample, at) if known is None else known.taking(sample, at, slack)
