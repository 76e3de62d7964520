"""Jobs that wait and whose deadlines leave no time for it."""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.control.features.deadlines.slack import slack
from eva_master.control.settings import Settings
from eva_master.control.state.records import PlanningRecords
from eva_master.model.planning.snapshot import Snapshot
from eva_wire.values.ids import JobId, Millis


@dataclass(frozen=True, slots=True)
class Hurry:
    """How the deadlines of jobs that wait stand.

    Attributes:
        jobs: Jobs that would be late if they waited any longer.
        next_ms: When the next of the others would; `None` if none ever will.
    """

    jobs: frozenset[JobId] = frozenset()
    next_ms: Millis | None = None


def hurry(state: PlanningRecords, seen: Snapshot, now: Millis, settings: Settings) -> Hurry:
    """Find the jobs whose tasks wait and must not.

    A job of unknown length counts, as it does where spot instances are weighed. A job that is late
    already does not: it is late whatever is paid.

    Args:
        state: With the job records.
        seen: The jobs that a plan is about.
        now: The time.
        settings: Assumed delays.
    """
    jobs, later, due = set[JobId](), list[int](), state.with_deadlines
    waiting = (run.job for run in seen.runs if run.instance is None) if due else ()
    for name in dict.fromkeys(name for name in waiting if name in due):
        job = state.jobs.get(name)
        deadline = None if job is None else job.spec.deadline
        if job is None or deadline is None:
            continue
        if now >= deadline.due_ms(job.submitted_ms, state.wall):
            continue
        stands = slack(state, job, now, settings)
        if stands is None or stands.slack_ms <= 0:
            jobs.add(name)
        else:
            later.append(now + stands.slack_ms)
    return Hurry(frozenset(jobs), Millis(min(later)) if later else None)
