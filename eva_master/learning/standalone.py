"""Standalone throughput per workload and family, as it was measured (Eva, section 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eva_master.learning.bounds import bounded
from eva_master.learning.estimate import MeasuredEstimate, taken
from eva_master.model.planning.plan import Json
from eva_master.model.planning.snapshot import StandaloneRates
from eva_master.model.values import replace
from eva_wire.values.ids import MILLION, Family, Millis, Workload

Key = tuple[Workload, Family]

_NEWS_FROM_PART = 20
"""An estimate is no news to the policies while it differs by less than one part in so many from
what they know: every one that is makes them value tasks anew."""
_SIGNIFICANT_DIGITS = 3


@dataclass(frozen=True, slots=True)
class StandaloneTable:
    """Rates of tasks that shared their instance with no other task.

    Attributes:
        rates: Iterations per second in millionths, by workload and family; 0 for a task that ran
            for long and reported none.
        known: The rates that policies use.
    """

    rates: Mapping[Key, MeasuredEstimate] = field(default_factory=dict)
    known: StandaloneRates = field(default_factory=StandaloneRates)

    def lookup(self, workload: Workload, family: Family) -> float | None:
        """Iterations per second, `None` before the first one was observed."""
        rate = self.rates.get((workload, family))
        return None if rate is None or rate.value == 0 else rate.value / MILLION

    def observe(
        self, workload: Workload, family: Family, rate: float, at: Millis
    ) -> StandaloneTable:
        """Record one window of a task that shared its instance with no other task.

        Args:
            workload: The task's workload.
            family: The family it ran on.
            rate: Iterations per second over the window, finite; rates below one in a million
                seconds teach nothing.
            at: When the window ended.

        Returns:
            The table with the estimate moved towards the new rate.
        """
        sample = round(rate * MILLION)
        if sample <= 0:
            return self
        before = self.rates.get((workload, family))
        if before is not None and before.value == 0:
            before = None
        return self._with((workload, family), taken(before, sample, at))

    def silent(self, workload: Workload, family: Family, at: Millis) -> StandaloneTable:
        """Record that a task ran for long and reported no iteration; known rates stand."""
        if (workload, family) in self.rates:
            return self
        return self._with((workload, family), MeasuredEstimate(0, at))

    def _with(self, entry: Key, estimate: MeasuredEstimate) -> StandaloneTable:
        rates = bounded({**self.rates, entry: estimate})
        used_rates = dict(self.known.measured)
        used = used_rates.get(entry)
        if used is not None and abs(estimate.value - used) * _NEWS_FROM_PART < max(used, 1):
            return replace(self, rates=rates)
        used_rates[entry] = _rounded(estimate.value)
        kept = sorted((key, rate) for key, rate in used_rates.items() if key in rates)
        return StandaloneTable(rates, StandaloneRates(tuple(kept)))

    def restricted(self, rates: Mapping[Key, MeasuredEstimate]) -> StandaloneTable:
        """The table with some of its entries alone."""
        kept = tuple(row for row in self.known.measured if row[0] in rates)
        return StandaloneTable(rates, StandaloneRates(kept))

    def to_json(self) -> Json:
        """The journal's form: a list of [workload, family, estimate, what policies know].

        Rates are in millionths per second.
        """
        used_rates = dict(self.known.measured)
        return [
            [
                workload,
                family,
                estimate.to_json(),
                used_rates.get((workload, family), _rounded(estimate.value)),
            ]
            for (workload, family), estimate in sorted(self.rates.items())
        ]

    @staticmethod
    def from_json(data: Json) -> StandaloneTable:
        """Read what `to_json` wrote, or earlier versions: without what policies know, or rates.

        Raises:
            ValueError: The data has another form.
        """
        if not isinstance(data, list):
            raise ValueError("a table of standalone throughput is a list")
        rates: dict[Key, MeasuredEstimate] = {}
        used: dict[Key, int] = {}
        for row in data:
            match row:
                case [str(workload), str(family), int(rate)]:
                    estimate, used_rate = MeasuredEstimate(rate, Millis(0)), _rounded(rate)
                case [str(workload), str(family), list(written)]:
                    estimate = MeasuredEstimate.from_json(written)
                    used_rate = _rounded(estimate.value)
                case [str(workload), str(family), list(written), int(used_rate)]:
                    estimate = MeasuredEstimate.from_json(written)
                case _:
                    raise ValueError(f"not an entry of standalone throughput: {row!r}")
            entry = Workload(workload), Family(family)
            rates[entry], used[entry] = estimate, used_rate
        return StandaloneTable(rates, StandaloneRates(tuple(sorted(used.items()))))


def _rounded(value: int) -> int:
    """Round to three significant digits."""
    unit = int(10 ** max(0, len(str(value)) - _SIGNIFICANT_DIGITS))
    return (value + unit // 2) // unit * unit
