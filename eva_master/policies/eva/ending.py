"""Tasks that are about to end are left where they are: a move would take longer than they have."""

from __future__ import annotations

from eva_master.model.ids import Millis
from eva_master.model.planning.snapshot import JobView, RunView, Snapshot
from eva_master.model.values import replace


def without_late_moves(snapshot: Snapshot) -> Snapshot:
    """A snapshot in which task runs are pinned whose move takes longer than they have left.

    Those of which nothing is known may move, and so may those whose instance goes.

    Args:
        snapshot: The cluster.
    """
    jobs = {job.id: job for job in snapshot.jobs}
    live = {instance.id for instance in snapshot.instances}
    ending = {
        run.id
        for run in snapshot.runs
        if run.running
        and not run.pinned
        and run.instance in live
        and _ends_sooner(run, jobs[run.job], snapshot.now_ms)
    }
    if not ending:
        return snapshot
    runs = (replace(run, pinned=True) if run.id in ending else run for run in snapshot.runs)
    return replace(snapshot, runs=tuple(runs))


def _ends_sooner(run: RunView, job: JobView, now: Millis) -> bool:
    """Whether a task run has less left than it takes to stop it and to start it elsewhere."""
    if run.remaining is None:
        return False
    return run.remaining.left_ms(now) < job.checkpoint_ms + job.launch_ms
