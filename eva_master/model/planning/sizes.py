"""A snapshot in which elastic gangs have other sizes: how policies and the control loop resize."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from eva_master.model.ids import JobId, RunId, run_id
from eva_master.model.planning.snapshot import JobView, RunView, Snapshot


def with_sizes(snapshot: Snapshot, sizes: Mapping[JobId, int]) -> Snapshot:
    """The cluster as it is once elastic gangs have some other numbers of members.

    Who joins has no place yet; who leaves has none any more and is not there.

    Args:
        snapshot: The cluster.
        sizes: Numbers of members of elastic gangs; one of a job that is not there is no error.

    Returns:
        The snapshot itself if nothing changes.
    """
    changed = {
        job.id: replace(job, runs=tuple(run_id(job.id, index) for index in range(size)))
        for job in snapshot.jobs
        if job.elastic is not None and (size := sizes.get(job.id, len(job.runs))) != len(job.runs)
    }
    if not changed:
        return snapshot
    left = {run for job in snapshot.jobs if job.id in changed for run in job.runs}
    left -= {run for job in changed.values() for run in job.runs}
    first = {run.job: run for run in snapshot.runs if run.id == run_id(run.job, 0)}
    known = {run.id for run in snapshot.runs}
    joining = [
        _joining(first[job.id], name)
        for job in changed.values()
        for name in job.runs
        if name not in known
    ]
    staying = [run for run in snapshot.runs if run.id not in left]
    return replace(
        snapshot,
        jobs=tuple(changed.get(job.id, job) for job in snapshot.jobs),
        runs=tuple(sorted([*staying, *joining], key=lambda run: run.id)),
        instances=tuple(
            replace(view, residents=tuple(run for run in view.residents if run not in left))
            if left.intersection(view.residents)
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
    there = {run.job for run in snapshot.runs}
    for job in snapshot.jobs:
        if job.elastic is not None and job.id not in pinned and job.id in there:
            yield job
