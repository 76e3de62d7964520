"""A planner for every partition, so that a slow policy of one holds up no other."""

from __future__ import annotations

from collections.abc import Mapping

from eva_master.adapters.planner.process import ProcessPlanner
from eva_master.model.actions import RequestPlan
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot


class PartitionedPlanner:
    """Implements `eva_master.ports.Planner` with a child process for each partition.

    Args:
        planners: By the name of the partition; by the empty one if the cluster is not divided.
    """

    def __init__(self, planners: Mapping[str, ProcessPlanner]) -> None:
        self._planners = planners

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
            partition: Whose policy is asked; empty if the cluster is not divided.

        Raises:
            InvalidPlan: The policy failed.
        """
        return await self._planners[partition].preview(snapshot, memory)

    def close(self) -> None:
        """End all children at once; requests in progress fail."""
        for planner in self._planners.values():
            planner.close()
