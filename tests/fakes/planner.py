"""A planner for tests that need no process."""

from __future__ import annotations

from eva_master.model.actions import RequestPlan
from eva_master.model.events import PlanFailed, PlanReady
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.claims.asking import ask
from eva_master.ports import Inbox, Policy
from eva_wire.values.errors import InvalidPlan


class InlinePlanner:
    """Plans in the caller's thread, as `eva_master.ports.Planner`.

    Args:
        inbox: Gets `PlanReady` or `PlanFailed`.
        policy: Does the planning.
    """

    def __init__(self, inbox: Inbox, policy: Policy) -> None:
        self._inbox = inbox
        self._policy = policy

    def request(self, request: RequestPlan) -> None:
        """Make a plan and post `PlanReady` or `PlanFailed`."""
        try:
            plan, memory = ask(self._policy, request.snapshot, request.memory)
        except Exception as error:
            self._inbox.post(PlanFailed(request.round, repr(error)))
        else:
            self._inbox.post(PlanReady(request.round, plan, memory))

    async def preview(
        self,
        snapshot: Snapshot,
        memory: PolicyMemory | None,
        partition: str = "",
    ) -> Plan:
        """Make a plan that nobody carries out.

        Raises:
            InvalidPlan: The policy broke down.
        """
        try:
            return ask(self._policy, snapshot, memory)[0]
        except Exception as error:
            raise InvalidPlan(repr(error)) from error
