"""Instances and budget of a partition, as a cap of its plans."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from eva_master.control.planning.allowance import Allowance
from eva_master.packing.plan_effect import PlanEffect, Unit


@dataclass(slots=True)
class PartitionCap:
    """Launches that the allowance of a partition leaves.

    Attributes:
        effect: The plan.
        allowed: The partition's allowance.
    """

    effect: PlanEffect
    allowed: Allowance
    _bought: set[int] = field(default_factory=set)
    _price: int = 0
    """Price of the bought ones together, in micro-dollars per hour."""

    def refusal(self, unit: Unit) -> str:
        """Why the new instances of a unit are too many or too dear."""
        return self._refusal(unit.bought)

    def take(self, unit: Unit) -> None:
        """Count the new instances of a unit."""
        self._buy(unit.bought)

    def too_many(self, members: Sequence[int]) -> set[int]:
        """New members of pools that are not allowed."""
        gone = set[int]()
        for key in members:
            if self._refusal({key}):
                gone.add(key)
            else:
                self._buy({key})
        return gone

    def _refusal(self, keys: set[int]) -> str:
        new = (keys - self._bought) & self.effect.launched.keys()
        if not new:
            return ""
        price = self._price + sum(self.effect.launched[key].price for key in new)
        return self.allowed.refusal(len(self._bought) + len(new), price)

    def _buy(self, keys: set[int]) -> None:
        new = (keys - self._bought) & self.effect.launched.keys()
        self._price += sum(self.effect.launched[key].price for key in new)
        self._bought |= new
