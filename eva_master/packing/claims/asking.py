"""Asks a policy for a plan that keeps to the claims of a snapshot."""

from __future__ import annotations

from eva_master.model.planning.plan import PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing import round_work
from eva_master.packing.claims.views import ClaimView, Refused
from eva_master.packing.claims.walk import Way
from eva_master.packing.policy_wrapper import PolicyWrapper
from eva_master.ports import Planned, Policy

_MOST_ASKED = 4
"""So often a policy is asked in a round at most; mostly once."""


def ask(policy: Policy, snapshot: Snapshot, memory: PolicyMemory | None) -> Planned:
    """Decide on one round's plan, for a snapshot with claims or without.

    All claims for which there is room are planned at once, together with later task runs that find
    room besides. If the policy does not place a claim, it is asked again without the later ones,
    and then as for a claim without room. All of its plans share the work of one round.

    Args:
        policy: A policy, which knows nothing of claims.
        snapshot: The cluster.
        memory: The policy's memory.
    """
    if not snapshot.claims or snapshot.unclaimed:
        return policy.plan(snapshot, memory)
    refused: Refused = frozenset()
    alone = -1
    for asked in range(1, _MOST_ASKED + 1):
        view = ClaimView.of(snapshot, refused, alone)
        plan, memory_after = policy.plan(view.shown, memory)
        snapshot = round_work.after(plan, snapshot)
        step = view.missed(plan)
        if step is None:
            break
        if step.way is Way.READY and view.contended and alone < 0:
            alone = step.number
        else:
            refused, alone = refused | {(step.number, step.way)}, -1
        if asked == _MOST_ASKED - 1:
            every = range(len(snapshot.claims))
            refused, alone = frozenset((number, way) for number in every for way in Way), -1
    return view.completed(plan), memory_after


class KeepsClaims(PolicyWrapper[Policy]):
    """Makes a policy that knows nothing of claims keep to them."""

    def plan(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Planned:
        """See `eva_master.ports.Policy.plan`."""
        return ask(self._inner, snapshot, memory)
