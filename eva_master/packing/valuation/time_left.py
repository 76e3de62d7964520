"""Correction of estimates for tasks that run for longer than expected.

Estimates in a snapshot are those of the last event. Time passes without one, and a task that runs
for longer than its job's estimate implies that the others of the job take longer, too.
"""

from __future__ import annotations

from collections import defaultdict

from eva_master.model.ids import JobId
from eva_master.model.job import JobKind
from eva_master.model.planning.estimate import Estimate
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.model.values import replace


def by_now(snapshot: Snapshot) -> Snapshot:
    """A snapshot with the estimates of its time; the same object if none has changed.

    Args:
        snapshot: The cluster.
    """
    raised = _raised(snapshot)
    if not raised:
        return snapshot

    def longer(run: RunView) -> RunView:
        work, estimates = run.remaining, raised.get(run.job)
        if estimates is None or work is None or not work.estimated:
            return run
        return replace(run, remaining=work.longer(estimates[0].mean_ms, estimates[1].mean_ms))

    def corrected(job: JobView) -> JobView:
        if job.id not in raised:
            return job
        return replace(job, progress=replace(job.progress, estimate=raised[job.id][1]))

    jobs = tuple(map(corrected, snapshot.jobs))
    return replace(snapshot, jobs=jobs, runs=tuple(map(longer, snapshot.runs)))


def _raised(snapshot: Snapshot) -> dict[JobId, tuple[Estimate, Estimate]]:
    """Estimates that running tasks raise, as they were and as they are now, by job."""
    ages: defaultdict[JobId, list[int]] = defaultdict(list)
    for run in snapshot.runs:
        work = run.remaining
        if run.running and work is not None and work.estimated and not run.replica:
            ages[run.job].append(work.ran_by_ms(snapshot.now_ms))
    raised = {}
    for job in snapshot.jobs if ages else ():
        estimate = job.progress.estimate
        if estimate is None or job.id not in ages:
            continue
        if job.spec.kind is JobKind.GANG:  # its members take equally long
            now = estimate.raised(0, ages[job.id][:1])
        else:
            now = estimate.raised(job.progress.succeeded, ages[job.id])
        if now is not estimate:
            raised[job.id] = estimate, now
    return raised
