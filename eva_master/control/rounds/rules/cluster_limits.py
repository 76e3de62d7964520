"""Limits of the number of instances: of the cluster, of a user and of a job."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence, Set

from eva_master.control.settings import NO_LIMIT, Limits
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.plan_effect import Unit
from eva_master.packing.room import Place
from eva_wire.values.ids import JobId


class Usage:
    """Counts the instances of jobs and users while units are placed one after the other.

    Making one takes time in proportion to the cluster, an answer in proportion to its unit alone.

    Args:
        now: The cluster as it is.
        limits: How many instances there may be.
        owner_of: Owner of a job.
        live: How many instances there are, those that are going included.

    Attributes:
        new: Keys of the instances that are launched.
    """

    def __init__(
        self, now: Snapshot, limits: Limits, owner_of: Callable[[JobId], str], live: int
    ) -> None:
        self.new: set[int] = set()
        self._live = live
        self._limits = limits
        self._owner_of = owner_of
        self._of_job: defaultdict[JobId, set[Place]] = defaultdict(set)
        self._of_user: defaultdict[str, set[Place]] = defaultdict(set)
        counted = min(limits.instances_per_job, limits.instances_per_user) < NO_LIMIT
        for view in now.runs if counted else ():
            if view.instance is not None:
                self._of_job[view.job].add(view.instance)
                self._of_user[owner_of(view.job)].add(view.instance)

    def excess(self, unit: Unit, live: int) -> str:
        """Why a unit takes too many instances; empty if it does not.

        Args:
            unit: The unit.
            live: How many instances there are, those that are going included.
        """
        limits, owner = self._limits, self._owner_of(unit.job.id)
        places, new = unit.places, unit.bought
        if not new:
            return ""
        if live + len(self.new) + len(new - self.new) > limits.instances:
            return f"the cluster may have {limits.instances:,} instances (limits.instances)"
        if _together(self._of_user[owner], places) > limits.instances_per_user:
            return (
                f"tasks of {owner} may be on {limits.instances_per_user:,} instances"
                " (limits.instances_per_user)"
            )
        if _together(self._of_job[unit.job.id], places) > limits.instances_per_job:
            return (
                f"tasks of a job may be on {limits.instances_per_job:,} instances"
                " (limits.instances_per_job)"
            )
        return ""

    def refusal(self, unit: Unit) -> str:
        """Why a unit takes too many instances, beside those that are there."""
        return self.excess(unit, self._live)

    def take(self, unit: Unit) -> None:
        """Place a unit, which counts for the next ones."""
        self.new |= unit.bought
        self._of_user[self._owner_of(unit.job.id)] |= unit.places
        self._of_job[unit.job.id] |= unit.places

    def too_many(self, members: Sequence[int]) -> set[int]:
        """New members of pools that would be beyond the limit, once all units are placed."""
        room = max(0, self._limits.instances - self._live - len(self.new))
        return set(members[room:])


def _together(there: Set[Place], more: Set[Place]) -> int:
    """How many places two sets have together; takes time in proportion to the second one."""
    return len(there) + len(more - there)
