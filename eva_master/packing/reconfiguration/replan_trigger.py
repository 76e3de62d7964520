"""What has happened since the last round, and so what may be reconsidered."""

from __future__ import annotations

from dataclasses import replace

from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.planner_cache import PlannerCache
from eva_master.packing.reconfiguration.memory import RoundMemory


class ReplanTrigger:
    """Compares a snapshot with the last one that was answered.

    Attributes:
        events: Jobs that arrived or ended since then.
        total: The same since the cluster began.
        full: Whether everything may be reconsidered: there were events, or task runs that could not
            be moved at the last one now can.
        partial: Whether something may be: that, or something was learned.
        waiting: Whether a task run is without a place.
    """

    def __init__(self, memory: RoundMemory, snapshot: Snapshot, cache: PlannerCache) -> None:
        live = {instance.id for instance in snapshot.instances}
        pinned = {
            run.instance
            for run in snapshot.runs
            if run.pinned and run.instance is not None and run.instance in live
        }
        self.waiting = any(not run.pinned and run.instance not in live for run in snapshot.runs)
        self._pinned = tuple(sorted(pinned))
        self.total = snapshot.arrivals + snapshot.completions
        self._learned = cache.digest(snapshot.throughput, snapshot.standalone)
        self.events = max(0, self.total - memory.events)
        freed = any(
            instance in live and instance not in pinned for instance in memory.pinned_instances
        )
        self.full = self.events > 0 or freed
        self.partial = self.full or self._learned != memory.learned

    def remember(self, memory: RoundMemory) -> RoundMemory:
        """What the next round must know of this one."""
        pinned = self._pinned if self.full else memory.pinned_instances
        return replace(memory, events=self.total, pinned_instances=pinned, learned=self._learned)
