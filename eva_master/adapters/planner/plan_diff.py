"""Sends plans back from another process as differences from the last one.

A plan says of each instance why it is kept. While an instance stays as it is, that is one object
(see `eva_master.packing.reconfiguration.reasons`). So both ends keep those of the last plan, and
only new ones are sent.
"""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.model.planning.plan import Plan
from eva_master.model.planning.reasons import Hosting
from eva_master.model.values import replace

_NEW = -1


@dataclass(frozen=True, slots=True)
class PlanDiff:
    """The difference of a plan from the one before.

    Attributes:
        number: Number of the plan.
        plan: The plan, of its hostings only the new ones.
        places: For each of its hostings the place among those of the plan before, -1 for a new one.
    """

    number: int
    plan: Plan
    places: tuple[int, ...]


class PlanSender:
    """Makes differences, at the end that has the plans."""

    def __init__(self) -> None:
        self._number = 0
        self._sent: tuple[Hosting, ...] = ()

    def diff(self, plan: Plan, base: int) -> PlanDiff:
        """The difference to send for a plan.

        Args:
            plan: The plan.
            base: Number of the last plan that the other end has, 0 for none.
        """
        before = self._sent if base == self._number else ()
        self._number, self._sent = self._number + 1, plan.reasons.hostings
        place_of = {id(hosting): place for place, hosting in enumerate(before)}
        fresh = tuple(hosting for hosting in self._sent if id(hosting) not in place_of)
        places = tuple(place_of.get(id(hosting), _NEW) for hosting in self._sent)
        return PlanDiff(self._number, _with_hostings(plan, fresh), places)


class PlanReceiver:
    """Restores plans, at the receiving end.

    Attributes:
        number: Number of the last plan, 0 before the first.
    """

    def __init__(self) -> None:
        self.number = 0
        self._hostings: tuple[Hosting, ...] = ()

    def plan(self, diff: PlanDiff) -> Plan:
        """The plan that was sent for the last one here, or for none."""
        fresh = iter(diff.plan.reasons.hostings)
        self._hostings = tuple(
            next(fresh) if place == _NEW else self._hostings[place] for place in diff.places
        )
        self.number = diff.number
        return _with_hostings(diff.plan, self._hostings)


def _with_hostings(plan: Plan, hostings: tuple[Hosting, ...]) -> Plan:
    return replace(plan, reasons=replace(plan.reasons, hostings=hostings))
