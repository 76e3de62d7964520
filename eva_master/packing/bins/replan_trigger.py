"""Whether anything has happened that a policy could answer by moving tasks."""

from __future__ import annotations

from eva_master.model.planning.plan import Json, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot

_VERSION = 1


def replan_due(
    policy: str, snapshot: Snapshot, memory: PolicyMemory | None
) -> tuple[bool, PolicyMemory]:
    """Whether anything has happened since the last answer that moves could answer.

    That is an arrival or an end of a job, or that no task run on an instance is between places any
    longer that was so then. So if nothing happens nothing moves, whatever the clock says.

    Args:
        policy: Whose memory it is.
        snapshot: The cluster now.
        memory: What was returned last time.

    Returns:
        Whether moves are due, and what to remember.
    """
    seen, pinned_before = _read(policy, memory)
    total = snapshot.arrivals + snapshot.completions
    pinned = {run.instance for run in snapshot.runs if run.pinned and run.instance}
    live = {view.id for view in snapshot.instances}
    due = total != seen or any(one in live and one not in pinned for one in pinned_before)
    kept: list[Json] = [str(one) for one in sorted(pinned)] if due else list(pinned_before)
    return due, PolicyMemory(policy, _VERSION, {"events": total, "hindered": kept})


def _read(policy: str, memory: PolicyMemory | None) -> tuple[int, list[str]]:
    if memory is None or memory.policy != policy or memory.version != _VERSION:
        return -1, []
    match memory.data:
        case {"events": int(events), "hindered": list(pinned_before)}:
            return events, [str(one) for one in pinned_before]
        case _:
            return -1, []
