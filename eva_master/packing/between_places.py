"""Gangs of which nobody may be given a place now, since they could not be whole."""

from __future__ import annotations

from collections.abc import Container

from eva_master.model.planning.snapshot import Snapshot
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import InstanceId, JobId


def between_places(snapshot: Snapshot, live: Container[InstanceId | None]) -> set[JobId]:
    """Gangs with a pinned member that has no place on a live instance: no plan gives it one.

    Args:
        snapshot: The snapshot that a policy sees.
        live: The instances of the snapshot.
    """
    jobs = {run.job for run in snapshot.runs if run.pinned and run.instance not in live}
    if not jobs:
        return jobs
    return {job.id for job in snapshot.jobs if job.id in jobs and job.spec.kind is JobKind.GANG}
