"""Removal of what an ended job has stored: decided in the journal, then carried out and repeated.

A removal is pending from its decision until the object store has confirmed it, however often the
master starts meanwhile. A removal rests while an active job reads the files.
"""

from __future__ import annotations

from collections.abc import Collection

from eva_master.control.alarms import Alarm, Wake
from eva_master.control.state.parts.results import Removals
from eva_master.control.turn.turn import Turn
from eva_master.model.actions import FindExpired, RemoveResults, Reply
from eva_master.model.events import RemovalRequested, ResultsExpired, ResultsRemoved
from eva_master.model.job import JobSpec
from eva_master.model.values import replace
from eva_wire.values.errors import InvalidJob, InvalidRequest, JobActive
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.states import TERMINAL_JOB

AT_ONCE = 100
"""Removals that are carried out at a time, and jobs that are looked at for `results_kept`."""
AGAIN_MS = 60_000
"""An unconfirmed removal is ordered again after this time."""
LOOK_MS = 3_600_000
"""Time between two looks for jobs whose time is over."""
_NAMED = 5
_ALL = JobId("")
"""Stands for all jobs in the account of orders."""


def requested(turn: Turn, event: RemovalRequested, needed: Collection[JobId]) -> None:
    """Decide on a user's removal.

    Args:
        turn: The turn.
        event: The command, on a job that its user may remove.
        needed: Active jobs that read the files.
    """
    refusal = _refusal(turn, event.job, needed)
    if refusal is None:
        _add(turn, [event.job], event.owner)
    turn.outbox.add(Reply(event.command, None if refusal else event.job, refusal, event.owner))


def _refusal(turn: Turn, name: JobId, needed: Collection[JobId]) -> InvalidRequest | None:
    job = turn.state.jobs.get(name)
    if job is not None and job.state not in TERMINAL_JOB:
        return JobActive(
            f"job {name} is {job.state.value}, and only files of jobs that have ended are removed",
            hint=f"wait for its end, or end it first: eva cancel {name}",
        )
    if needed:
        some = ", ".join(list(needed)[:_NAMED])
        more = f" and {len(needed) - _NAMED:,} more" if len(needed) > _NAMED else ""
        return InvalidRequest(
            f"what {name} has stored is read by {some}{more}",
            hint="remove it once these have ended",
        )
    return None


def refusal_of_reader(turn: Turn, spec: JobSpec, removed: Collection[JobId]) -> InvalidJob | None:
    """Refuse a job that reads files which go or have gone; `None` if it reads none of them.

    A retry is refused, too: uploads of the job that it does again may go with that job's files.
    """
    retried = () if spec.retry is None else (spec.retry.job,)
    for job in (*spec.sources, *retried):
        if job in turn.state.removals.pending or job in removed:
            return InvalidJob(
                f"what {job} had stored has been removed, and the job reads it",
                hint=f"submit {job}'s job file again, and name the new job",
            )
    return None


def expired(turn: Turn, event: ResultsExpired) -> None:
    """Decide on the removal of what jobs have stored whose time is over."""
    if event.jobs:
        turn.outbox.forget(_ALL)  # More may follow: look on once these have gone.
    _add(turn, event.jobs, "", expired_ms=event.until_ms)


def removed(turn: Turn, event: ResultsRemoved) -> bool:
    """Record the answer of the object store; one that failed is asked again.

    Returns:
        Whether the files have gone.
    """
    removals = turn.state.removals
    if event.error or event.job not in removals.pending:
        return False
    rest = {job: by for job, by in removals.pending.items() if job != event.job}
    turn.state.remember(replace(removals, pending=rest))
    turn.outbox.forget(event.job)
    if len(rest) < AT_ONCE:
        turn.alarms.at(turn.now, Alarm(Wake.RESULTS))
    return True


def _add(turn: Turn, jobs: Collection[JobId], by: str, *, expired_ms: Millis | None = None) -> None:
    old = turn.state.removals
    pending = {**dict.fromkeys(jobs, by), **old.pending}
    look = old.expired_ms if expired_ms is None else Millis(max(expired_ms, old.expired_ms))
    if len(pending) != len(old.pending) or look != old.expired_ms:
        turn.state.remember(Removals(pending, look))
    turn.alarms.at(turn.now, Alarm(Wake.RESULTS))


def order(turn: Turn, needed: Collection[JobId]) -> None:
    """Order removals that are pending, and look for jobs whose time is over.

    Args:
        turn: The turn; what it has decided is written before its orders are carried out.
        needed: Jobs whose files active jobs read.
    """
    removals = turn.state.removals
    ready = [job for job in removals.pending if job not in needed]
    for job in ready[:AT_ONCE]:
        if turn.outbox.due(job, ("remove",), AGAIN_MS):
            turn.outbox.add(RemoveResults(job, removals.pending[job]))
    if removals.pending:
        turn.alarms.at(Millis(turn.now + AGAIN_MS), Alarm(Wake.RESULTS))
    kept_ms = turn.settings.results_kept_ms
    if kept_ms is None:
        return
    until = Millis(turn.now - kept_ms)
    if len(ready) < AT_ONCE and turn.outbox.due(_ALL, ("expired",), LOOK_MS):
        turn.outbox.add(FindExpired(removals.expired_ms, until, AT_ONCE))
    turn.alarms.at(Millis(turn.now + LOOK_MS), Alarm(Wake.RESULTS))
