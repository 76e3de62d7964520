"""Warnings of jobs with deadlines that others are due before, at the same limit."""

from __future__ import annotations

from collections.abc import Iterator

from eva_master.control.features.deadlines.room import PartitionRoom
from eva_master.control.measure import remaining
from eva_master.control.planning import scope
from eva_master.control.settings import Settings
from eva_master.control.state.records import Records
from eva_master.model.job import JobSpec, different
from eva_master.model.records import Job
from eva_wire.values.ids import JobId, Millis

_MANY = 10**9


def behind_others(
    state: Records, settings: Settings, spec: JobSpec, job: JobId | None, now: Millis
) -> str:
    """A warning that a job may be late since others are due before it; empty if not.

    The warning is no reason to refuse the job: others may end sooner than stated.

    Args:
        state: The records.
        settings: Settings, with the limits.
        spec: The job, with its partition.
        job: Its id, if it exists already.
        now: The time.
    """
    if spec.deadline is None:
        return ""
    kinds, room = tuple(different(spec.tasks)), PartitionRoom(state, settings, spec, spec.partition)
    takes_ms = remaining.of_spec(state, spec.of_tasks(kinds), now).longest_ms
    at_once = room.at_once(kinds, _MANY)
    if takes_ms is None or at_once >= _MANY:
        return ""
    ours = {offering.id for offering in room.offerings(kinds)}
    due_ms = spec.deadline.due_ms(now, state.wall)
    works = []
    for other in _due_before(state, settings, spec, due_ms, now):
        if other.id == job:
            continue
        if ours.isdisjoint(offering.id for offering in room.offerings(state.tasks.kinds(other.id))):
            continue
        if waiting := _waiting(state, other):
            task_ms = remaining.longest_ms(state, other)
            works.append(None if task_ms is None else task_ms * waiting)
    known_ms = sum(work for work in works if work is not None) // max(1, at_once)
    if not works or (None not in works and now + known_ms + takes_ms <= due_ms):
        return ""
    count = len(works)
    jobs = f"{count:,} jobs that are" if count > 1 else "a job that is"
    waits = "wait" if count > 1 else "waits"
    return f"{jobs} due before it {waits} for the same limit: it may be late"


def _due_before(
    state: Records, settings: Settings, spec: JobSpec, due_ms: int, now: Millis
) -> Iterator[Job]:
    home = settings.partitions.home
    for name in state.active:
        job = state.jobs[name]
        deadline = job.spec.deadline
        if deadline is None or not scope.plans_job(state, job):
            continue
        if job.spec.priority < spec.priority or home(job.partition) is not home(spec.partition):
            continue
        if now < deadline.due_ms(job.submitted_ms, state.wall) < due_ms:
            yield job


def _waiting(state: Records, job: Job) -> int:
    """How many of its tasks wait for a place."""
    placed = sum(not run.extra for run in state.in_hand(job.id))
    if job.is_gang:
        return max(0, job.members - placed)
    over = state.tasks.succeeded(job.id) + state.tasks.failed(job.id)
    return max(0, job.spec.size - over - placed)
