"""Whether anything has happened that a policy could answer by moving tasks."""

from __future__ import annotations

from eva_master.model.planning.plan import Json, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot

_VERSION = 1


def replan_due(
    policy: str, snapshot: Snapshot, memory: PolicyMemory | None
) -> tuple[bool, PolicyMemory]:
    """Whether an event since the last answer may make moves worth while.

    Events are an arrival or an end of a job, and the end of a transition of a task run on an
    instance. Time alone is no event.

    Args:
        policy: The policy that the memory belongs to.
        snapshot: The cluster now.
        memory: The memory returned last time.

    Returns:
        Whether moves are due, and the next memory.
    """
    seen, pinned_before = _read(policy, memory)
    total = snapshot.arrivals + snapshot.completions
    pinned = {run.instance for run in snapshot.runs if run.pinned and run.instance}
    live = {view.id for view in snapshot.instances}
    due = total != seen or any(
        instance in live and instance not in pinned for instance in pinned_before
    )
    kept: list[Json] = (
        [str(instance) for instance in sorted(pinned)] if due else list(pinned_before)
    )
    return due, PolicyMemory(policy, _VERSION, {"events": total, "hindered": kept})


def _read(policy: str, memory: PolicyMemory | None) -> tuple[int, list[str]]:
    if memory is None or memory.policy != policy or memory.version != _VERSION:
        return -1, []
    match memory.data:
        case {"events": int(events), "hindered": list(pinned_before)}:
            return events, [str(instance) for instance in pinned_before]
        case _:
            return -1, []
