"""Costs of pools' members, and the cost of the same instances on demand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from eva_master.model.values import quick
from eva_wire.values.ids import Exact


@quick
@dataclass(frozen=True, slots=True)
class PoolCost:
    """Costs of instances since they stood in a pool.

    Attributes:
        charged: The cloud's charges.
        idle: The part of `charged` that no task used.
        spot: The part of `charged` for spot members of whose type a price on demand is known.
        on_demand: The cost of those spot members on demand for the same time.
        unpriced: The part of `charged` for the other spot members.
    """

    charged: Exact = Exact(0)
    idle: Exact = Exact(0)
    spot: Exact = Exact(0)
    on_demand: Exact = Exact(0)
    unpriced: Exact = Exact(0)

    def __add__(self, more: PoolCost) -> PoolCost:
        return PoolCost(
            Exact(self.charged + more.charged),
            Exact(self.idle + more.idle),
            Exact(self.spot + more.spot),
            Exact(self.on_demand + more.on_demand),
            Exact(self.unpriced + more.unpriced),
        )

    def __sub__(self, less: PoolCost) -> PoolCost:
        return PoolCost(
            Exact(self.charged - less.charged),
            Exact(self.idle - less.idle),
            Exact(self.spot - less.spot),
            Exact(self.on_demand - less.on_demand),
            Exact(self.unpriced - less.unpriced),
        )

    def lowered(self, less: int) -> PoolCost:
        """This cost less a part of `charged` that was not owed after all; idle time goes first.

        Args:
            less: The amount that was not owed.
        """
        if not less:
            return self

        def rest(amount: int) -> Exact:
            return Exact(amount - amount * less // self.charged)

        return PoolCost(
            Exact(self.charged - less),
            Exact(max(0, self.idle - less)),
            rest(self.spot),
            rest(self.on_demand),
            rest(self.unpriced),
        )

    def to_json(self) -> dict[str, Any]:
        """The amounts other than zero, as decimal strings."""
        amounts = {column.name: getattr(self, column.name) for column in fields(self)}
        return {name: str(amount) for name, amount in amounts.items() if amount}

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> PoolCost:
        """Read the amounts from a document that `to_json` made."""
        return PoolCost(**{name: Exact(int(amount)) for name, amount in document.items()})


FREE = PoolCost()
Stood = tuple[tuple[str, PoolCost], ...]
"""Costs of one instance since it stood in each of some pools: sorted by pool name."""


def added(costs: Mapping[str, PoolCost], more: Mapping[str, PoolCost]) -> dict[str, PoolCost]:
    """The sums of pools' costs, by pool name and sorted."""
    names = sorted({*costs, *more})
    return {name: costs.get(name, FREE) + more.get(name, FREE) for name in names}


def written(costs: Mapping[str, PoolCost]) -> dict[str, Any]:
    """Pools' costs as a document; exact amounts are decimal strings, as in the tables."""
    return {pool: cost.to_json() for pool, cost in costs.items()}


def read(document: object) -> dict[str, PoolCost]:
    """Read what pools cost from such a document."""
    assert isinstance(document, dict)
    return {pool: PoolCost.from_json(cost) for pool, cost in document.items()}
