"""Standalone throughput per workload and family, as it was measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eva_master.learning.bounds import bounded
from eva_master.learning.estimate import Estimate, taken
from eva_master.model.ids import MILLION, Family, Millis, Workload
from eva_master.model.plan import Json


@dataclass(frozen=True, slots=True)
class StandaloneTable:
    """What tasks achieve when they share their instance with nobody.

    Attributes:
        rates: Iterations per second in millionths, by workload and family.
    """

    rates: Mapping[tuple[Workload, Family], Estimate] = field(default_factory=dict)

    def lookup(self, workload: Workload, family: Family) -> float | None:
        """Iterations per second, `None` before the first observation."""
        rate = self.rates.get((workload, family))
        return None if rate is None else rate.value / MILLION

    def observe(
        self, workload: Workload, family: Family, rate: float, at: Millis
    ) -> StandaloneTable:
        """Take in one window of a task that shared its instance with nobody.

        Args:
            workload: The task's.
            family: The family it ran on.
            rate: Iterations per second over the window, finite; nothing is learned from less
                than one in a million seconds.
            at: When the window ended.

        Returns:
            The table with the estimate moved towards the new rate.
        """
        sample = round(rate * MILLION)
        if sample <= 0:
            return self
        estimate = taken(self.rates.get((workload, family)), sample, at)
        return StandaloneTable(bounded({**self.rates, (workload, family): estimate}))

    def to_json(self) -> Json:
        """The journal's form: a list of [workload, family, estimate in millionths per second]."""
        return [
            [workload, family, it.to_json()]
            for (workload, family), it in sorted(self.rates.items())
        ]

    @staticmethod
    def from_json(data: Json) -> StandaloneTable:
        """Read what `to_json` wrote, or what its first version wrote: plain rates.

        Raises:
            ValueError: The data has another form.
        """
        if not isinstance(data, list):
            raise ValueError("a table of standalone throughput is a list")
        rates: dict[tuple[Workload, Family], Estimate] = {}
        for row in data:
            match row:
                case [str(workload), str(family), int(rate)]:
                    estimate = Estimate(rate, Millis(0))
                case [str(workload), str(family), list(known)]:
                    estimate = Estimate.from_json(known)
                case _:
                    raise ValueError(f"not an entry of standalone throughput: {row!r}")
            rates[Workload(workload), Family(family)] = estimate
        return StandaloneTable(rates)
