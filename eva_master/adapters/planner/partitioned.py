"""A planner for every partition, so that a slow policy of one holds up no other.

Previews have a process of their own, so that they hold up no round and no round holds up them.
"""

from __future__ import annotations

from collections.abc import Mapping

from eva_master.adapters.planner.previews import Previews
from eva_master.adapters.planner.process import ProcessPlanner
from eva_master.model.actions import RequestPlan
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot


class PartitionedPlanner:
    """Implements `eva_master.ports.Planner` with a child process for each partition.

    Args:
        planners: By the name of the partition; by the empty one if the cluster is not divided.
        previews: Makes the plans that are not carried out.
    """

    def __init__(
        self, planners: Mapping[str, ProcessPlanner], previews: Previews | None = None
    ) -> None:
        self._planners = planners
        self._previews = previews or Previews()

    def request(self, request: RequestPlan) -> None:
        """Have the partition's policy make a plan; see `ProcessPlanner.request`."""
        self._planners[request.partition].request(request)

    async def preview(
        self, snapshot: Snapshot, memory: PolicyMemory | None, partition: str = ""
    ) -> Plan:
        """Make a plan that is not carried out.

        Args:
            snapshot: Of the partition.
            memory: Of its policy.
            partition: Partition whose policy is asked; empty if the cluster is not divided.

        Raises:
            InvalidPlan: The policy failed, or took too long.
        """
        return await self._previews.preview(self._planners[partition].source, snapshot, memory)

    def slow(self) -> str:
        """Note about a round that takes long, with the time; empty if none does."""
        times = {name: planner.slow_for_s() for name, planner in self._planners.items()}
        slow = {name: seconds for name, seconds in times.items() if seconds is not None}
        if not slow:
            return ""
        name = max(slow, key=lambda each: slow[each])
        where = f" of partition {name}" if name else ""
        since = f"a plan{where} has been under way for {slow[name]:.0f} s"
        return f"{since}: tasks that wait are placed after it"

    def close(self) -> None:
        """End all children at once; requests in progress fail."""
        self._previews.close()
        for planner in self._planners.values():
            planner.close()
