"""What tasks that run for longer than expected tell of their jobs.

Estimates in a snapshot are those of the last event. Time passes without one, and a task that runs
for longer than its job's estimate says that the others of the job take longer, too.
"""

from __future__ import annotations

from collections import defaultdict

from eva_master.model.ids import JobId
from eva_master.model.job import JobKind
from eva_master.model.planning.estimate import Estimate
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.model.values import replace


def by_now(snapshot: Snapshot) -> Snapshot:
    """A snapshot whose estimates are those of its time; the same one if all of them are.

    Args:
        snapshot: The cluster.
    """
    raised = _raised(snapshot)
    if not raised:
        return snapshot

    def longer(run: RunView) -> RunView:
        work, known = run.remaining, raised.get(run.job)
        if known is None or work is None or not work.estimated:
            return run
        return replace(run, remaining=work.longer(known[0].mean_ms, known[1].mean_ms))

    jobs = (
        replace(job, estimate=raised[job.id][1]) if job.id in raised else job
        for job in snapshot.jobs
    )
    return replace(snapshot, jobs=tuple(jobs), runs=tuple(map(longer, snapshot.runs)))


def _raised(snapshot: Snapshot) -> dict[JobId, tuple[Estimate, Estimate]]:
    """The estimates that tasks raise which run, as they were and as they are now, by job."""
    ages: defaultdict[JobId, list[int]] = defaultdict(list)
    for run in snapshot.runs:
        work = run.remaining
        if run.running and work is not None and work.estimated and not run.replica:
            ages[run.job].append(work.ran_by_ms(snapshot.now_ms))
    found = {}
    for job in snapshot.jobs if ages else ():
        told = job.estimate
        if told is None or job.id not in ages:
            continue
        if job.kind is JobKind.GANG:  # its members take equally long
            now = told.raised(0, ages[job.id][:1])
        else:
            now = told.raised(job.succeeded, ages[job.id])
        if now is not told:
            found[job.id] = told, now
    return found
