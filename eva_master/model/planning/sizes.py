"""A snapshot in which elastic gangs have other sizes: how policies and the control loop resize."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_wire.values.ids import JobId, RunId, run_id


def with_sizes(snapshot: Snapshot, sizes: Mapping[JobId, int]) -> Snapshot:
    """The cluster after some elastic gangs have changed their numbers of members.

    New members have no place yet; members that leave are no longer in the snapshot.

    Args:
        snapshot: The cluster.
        sizes: Numbers of members by elastic gang; jobs that are not in the snapshot are ignored.

    Returns:
        The snapshot itself if nothing changes.
    """
    if not sizes:
        return snapshot
    changed = {
        job.id: replace(job, runs=tuple(run_id(job.id, index) for index in range(size)))
        for job in snapshot.jobs
        if job.sharing.elastic is not None
        and (size := sizes.get(job.id, len(job.runs))) != len(job.runs)
    }
    if not changed:
        return snapshot
    leaving = {run for job in snapshot.jobs if job.id in changed for run in job.runs}
    leaving -= {run for job in changed.values() for run in job.runs}
    first = {run.job: run for run in snapshot.runs if run.id == run_id(run.job, 0)}
    present = {run.id for run in snapshot.runs}
    joining = [
        _joining(first[job.id], name)
        for job in changed.values()
        for name in job.runs
        if name not in present
    ]
    staying = [run for run in snapshot.runs if run.id not in leaving]
    return replace(
        snapshot,
        jobs=tuple(changed.get(job.id, job) for job in snapshot.jobs),
        runs=tuple(sorted([*staying, *joining], key=lambda run: run.id)),
        instances=tuple(
            replace(view, residents=tuple(run for run in view.residents if run not in leaving))
            if leaving.intersection(view.residents)
            else view
            for view in snapshot.instances
        ),
    )


def _joining(like: RunView, name: RunId) -> RunView:
    waits = replace(like, id=name, instance=None, running=False, held=False)
    return replace(waits, since_ms=None)


def resizable(snapshot: Snapshot) -> Iterator[JobView]:
    """Elastic gangs whose size may be changed now: no member is in transition or done."""
    pinned = {run.job for run in snapshot.runs if run.pinned}
    present = {run.job for run in snapshot.runs}
    for job in snapshot.jobs:
        if job.sharing.elastic is not None and job.id not in pinned and job.id in present:
            yield job
