"""Tasks that end before they could run elsewhere are left where they are."""

from __future__ import annotations

from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.values import replace
from eva_master.packing.valuation.ending import about_to_empty, ending


def without_late_moves(snapshot: Snapshot) -> Snapshot:
    """A snapshot in which tasks are pinned whose instances will be empty before any new one is up.

    Args:
        snapshot: The cluster.
    """
    instances = about_to_empty(snapshot, ending(snapshot))
    if not instances:
        return snapshot
    runs = (
        replace(run, pinned=True) if run.instance in instances and not run.pinned else run
        for run in snapshot.runs
    )
    return replace(snapshot, runs=tuple(runs))
