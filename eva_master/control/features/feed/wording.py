"""Sentences about changes of records. Pure functions; `None` where nothing is worth an event."""

from __future__ import annotations

from collections.abc import Iterator

from eva_master.model.arithmetic.calendar import moment_of
from eva_master.model.catalog import Purchase
from eva_master.model.feed import FeedKind
from eva_master.model.planning.suspension import Suspender
from eva_master.model.records import Instance, Job, TaskRun
from eva_wire.values.ids import MILLION, Millis
from eva_wire.values.states import TERMINAL_JOB, InstanceState, JobState, RunState

Said = tuple[FeedKind, str]
"""The kind of an event, and its sentence."""

_ENDS = {
    JobState.SUCCEEDED: FeedKind.SUCCEEDED,
    JobState.FAILED: FeedKind.FAILED,
    JobState.CANCELLED: FeedKind.CANCELLED,
}


def of_master(put_back_to: Millis | None) -> str:
    """The sentence about a master that starts.

    Args:
        put_back_to: When its journal was last written, by the wall clock, if that was put back from
            a backup since the master before; else `None`.
    """
    if put_back_to is None:
        return "a master has taken charge"
    return (
        f"a master has taken charge with a journal put back to {moment_of(put_back_to)} UTC: jobs "
        "submitted after that are lost, and attempts begun after it are stopped before anything "
        "starts"
    )


def of_job(old: Job | None, job: Job) -> Iterator[Said]:
    """Events of a changed record of a job."""
    if old is None:
        tasks = len(job.spec.tasks)
        yield FeedKind.SUBMITTED, f"submitted by {job.spec.owner}: {_counted(tasks, 'task')}"
        return
    if job.failures > old.failures and job.is_gang and job.state not in TERMINAL_JOB:
        why = "" if job.failure is None else job.failure.reason
        yield FeedKind.FAILED, f"failure {job.failures}: {why or job.reason or 'no reason given'}"
    if job.cap_told and not old.cap_told:
        yield FeedKind.CAPPED, "most of its max_cost is spent"
    if job.moved_to is not None and job.moved_to != old.moved_to:
        yield FeedKind.MOVED, f"moved to the partition {job.moved_to or 'default'}"
    if job.suspension is not None and old.suspension is None:
        capped = job.suspension.by in (Suspender.COST, Suspender.MONTH)
        yield FeedKind.CAPPED if capped else FeedKind.SUSPENDED, job.suspension.words
    elif job.suspension is None and old.suspension is not None and job.state not in TERMINAL_JOB:
        yield FeedKind.RESUMED, "resumed"
    if job.state in TERMINAL_JOB and old.state not in TERMINAL_JOB:
        yield _ENDS[job.state], job.state.value + (f": {job.reason}" if job.reason else "")


def of_run(old: TaskRun | None, run: TaskRun, place: Instance | None) -> Iterator[Said]:
    """Events of a changed record of a task run.

    Args:
        old: The record before; `None` for an extra run, which is new.
        run: The record after.
        place: The instance that it is on after the change, if it is on one.
    """
    if old is None:
        return
    if run.moves > old.moves:
        yield FeedKind.MOVED, f"left {old.instance} to run elsewhere"
    if run.lost > old.lost:
        yield FeedKind.LOST, f"attempt {run.attempt} ended with {old.instance}"
    if run.failures > old.failures:
        yield FeedKind.FAILED, f"failure {run.failures}: {run.reason or 'no reason given'}"
    if run.suspension is not None and old.suspension is None:
        yield FeedKind.SUSPENDED, run.suspension.words
    if run.state is RunState.STARTING and run.attempt > old.attempt and place is not None:
        resumed = f", from checkpoint {run.resume}" if run.resume else ""
        again = f", attempt {run.attempt}{resumed}" if run.attempt > 1 else ""
        yield FeedKind.PLACED, f"starts on {place.id} ({place.offering.type.name}){again}"


def of_instance(old: Instance | None, instance: Instance) -> Iterator[Said]:
    """Events of a changed record of an instance."""
    if old is None:
        if not instance.owned:
            why = f": {instance.reason}" if instance.reason else ""
            yield FeedKind.LAUNCHING, f"launching {_offered(instance)}{why}"
        return
    if instance.up_ms is not None and old.up_ms is None and instance.gone_ms is None:
        yield FeedKind.UP, f"{_offered(instance)} is up"
    if instance.leaving_ms is not None and old.leaving_ms is None:
        yield FeedKind.REVOKED, f"the cloud takes it back: {instance.reason or 'no reason given'}"
    if instance.drain is not None and old.drain is None:
        yield FeedKind.DRAINING, f"takes no new tasks: {instance.drain.reason}"
    if instance.state is InstanceState.GONE and old.state is not InstanceState.GONE:
        if instance.up_ms is None and not instance.owned:
            why = instance.reason or "no reason given"
            yield FeedKind.REFUSED, f"{_sold(instance)} was not launched: {why}"
        else:
            yield FeedKind.GONE, "gone" + (f": {instance.reason}" if instance.reason else "")


def _offered(instance: Instance) -> str:
    return f"{_sold(instance)} at ${instance.offering.price / MILLION:,.4f}/h"


def _sold(instance: Instance) -> str:
    offering = instance.offering
    spot = offering.purchase is Purchase.SPOT
    return offering.type.name + (" on the spot market" if spot else "")


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
