"""Standalone throughput per workload and family, estimated where users state none."""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.model.ids import MILLION, Family, Workload
from eva_master.model.plan import Json

_WEIGHT = 4
"""A new window counts one part in so many; noise fades, a changed program is followed."""


@dataclass(frozen=True, slots=True)
class StandaloneTable:
    """What tasks achieve when they share their instance with nobody.

    Attributes:
        rates: Iterations per second in millionths, by workload and family; sorted.
    """

    rates: tuple[tuple[tuple[Workload, Family], int], ...] = ()

    def lookup(self, workload: Workload, family: Family) -> float | None:
        """Iterations per second, `None` before the first observation."""
        rate = dict(self.rates).get((workload, family))
        return None if rate is None else rate / MILLION

    def observe(self, workload: Workload, family: Family, rate: float) -> StandaloneTable:
        """Take in one window of a task that shared its instance with nobody.

        Args:
            workload: The task's.
            family: The family it ran on.
            rate: Iterations per second over the window; nothing is learned unless positive.

        Returns:
            The table with the estimate moved towards the new rate.
        """
        new = round(rate * MILLION)
        if new <= 0:
            return self
        rates = dict(self.rates)
        old = rates.get((workload, family))
        rates[workload, family] = new if old is None else old + (new - old) // _WEIGHT
        return StandaloneTable(tuple(sorted(rates.items())))

    def to_json(self) -> Json:
        """The journal's form: a list of [workload, family, millionths per second]."""
        return [[workload, family, rate] for (workload, family), rate in self.rates]

    @staticmethod
    def from_json(data: Json) -> StandaloneTable:
        """Read what `to_json` wrote.

        Raises:
            ValueError: The data has another form.
        """
        if not isinstance(data, list):
            raise ValueError("a table of standalone throughput is a list")
        rates: dict[tuple[Workload, Family], int] = {}
        for row in data:
            match row:
                case [str(workload), str(family), int(rate)]:
                    rates[Workload(workload), Family(family)] = rate
                case _:
                    raise ValueError(f"not an entry of standalone throughput: {row!r}")
        return StandaloneTable(tuple(sorted(rates.items())))
