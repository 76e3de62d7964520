"""The walk of a plan under a cap: units beyond it wait, those of the least urgent jobs first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from eva_master.model.planning.plan import pooled
from eva_master.packing.plan_effect import PlanEffect, Unit
from eva_wire.values.ids import RunId


class Cap(Protocol):
    """A rule by which a unit may be too much, on top of the units taken before it."""

    def refusal(self, unit: Unit) -> str:
        """Why a unit is too much, for its users; empty if it is not."""

    def take(self, unit: Unit) -> None:
        """Count a unit, which is placed."""

    def too_many(self, members: Sequence[int]) -> Collection[int]:
        """New members of pools that are too much, once all units are placed.

        Args:
            members: Keys of the new members on which no task run is placed.
        """


def within(effect: PlanEffect, cap: Cap, units: Iterable[Unit] | None = None) -> PlanEffect:
    """The part of a plan that a cap allows.

    Args:
        effect: The plan.
        cap: The cap.
        units: The units of the plan in another order than by urgency.
    """
    held: dict[RunId, str] = {}
    bought: set[int] = set()
    for unit in effect.units if units is None else units:
        if reason := cap.refusal(unit):
            held.update((entry.run, reason) for entry in unit.entries)
        else:
            cap.take(unit)
            bought |= unit.bought
    members = [key for key in pooled(effect.plan) if key not in bought]
    return effect.drop(held, cap.too_many(members))
