"""Asks a policy for a plan that keeps to the claims of a snapshot."""

from __future__ import annotations

from typing import Protocol

from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing import round_work
from eva_master.packing.claims.views import Refused, View
from eva_master.packing.claims.walk import Way

_MOST_ASKED = 4
"""So often a policy is asked in a round at most; mostly once."""


class Planner(Protocol):
    """Maker of plans; see `eva_master.ports.Policy`."""

    @property
    def name(self) -> str:
        """Its name in the settings."""
        ...

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        """Decide on one round's plan."""
        ...


def ask(
    policy: Planner, snapshot: Snapshot, memory: PolicyMemory | None
) -> tuple[Plan, PolicyMemory | None]:
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
        view = View.of(snapshot, refused, alone)
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


class KeepsClaims:
    """Makes a policy that knows nothing of claims keep to them.

    Args:
        inner: The policy.
    """

    def __init__(self, inner: Planner) -> None:
        self._inner = inner

    @property
    def name(self) -> str:
        """The policy's name in the settings."""
        return self._inner.name

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        """See `eva_master.ports.Policy.plan`."""
        return ask(self._inner, snapshot, memory)
