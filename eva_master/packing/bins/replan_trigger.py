"""Events since a policy's last answer that it could answer by moving tasks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from eva_master.model.planning.plan import Json, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_wire.values.ids import InstanceId

_VERSION = 1


@dataclass(frozen=True, slots=True)
class Happened:
    """Events since the last answer. Time alone is no event.

    Attributes:
        total: Jobs that arrived or ended since the cluster began.
        events: Jobs that arrived or ended since the last answer.
        freed: Whether tasks on an instance that could not be moved at the last answer now can.
        pinned: Live instances with task runs that cannot be moved now, in order.
    """

    total: int
    events: int
    freed: bool
    pinned: tuple[InstanceId, ...]

    @property
    def due(self) -> bool:
        """Whether moves may be worth while."""
        return self.events > 0 or self.freed


def happened(snapshot: Snapshot, answered: int, pinned_before: Collection[InstanceId]) -> Happened:
    """Find the events since the last answer.

    Args:
        snapshot: The cluster now.
        answered: Jobs that had arrived or ended by the last answer; -1 if there was none.
        pinned_before: Instances with task runs that could not be moved at the last answer.
    """
    live = {view.id for view in snapshot.instances}
    pinned = {
        run.instance
        for run in snapshot.runs
        if run.pinned and run.instance is not None and run.instance in live
    }
    total = snapshot.arrivals + snapshot.completions
    freed = any(instance in live and instance not in pinned for instance in pinned_before)
    return Happened(total, max(0, total - answered), freed, tuple(sorted(pinned)))


def replan_due(
    policy: str, snapshot: Snapshot, memory: PolicyMemory | None
) -> tuple[bool, PolicyMemory]:
    """Whether an event since the last answer may make moves worth while; see `Happened`.

    Args:
        policy: The policy that the memory belongs to.
        snapshot: The cluster now.
        memory: The memory returned last time.

    Returns:
        Whether moves are due, and the next memory.
    """
    answered, pinned_before = _read(policy, memory)
    events = happened(snapshot, answered, pinned_before)
    kept: list[Json] = [*(events.pinned if events.due else pinned_before)]
    data: dict[str, Json] = {"events": events.total, "hindered": kept}
    return events.due, PolicyMemory(policy, _VERSION, data)


def _read(policy: str, memory: PolicyMemory | None) -> tuple[int, list[InstanceId]]:
    if memory is None or memory.policy != policy or memory.version != _VERSION:
        return -1, []
    match memory.data:
        case {"events": int(events), "hindered": list(pinned_before)}:
            return events, [InstanceId(str(instance)) for instance in pinned_before]
        case _:
            return -1, []
