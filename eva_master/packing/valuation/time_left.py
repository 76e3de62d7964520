"""Tasks that end soon, and estimates for tasks that run for longer than expected.

Estimates in a snapshot are those of the last event. Time passes without one, and a task that runs
for longer than its job's estimate implies that the others of the job take longer, too.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping

from eva_master.model.catalog import Catalog, Offering, Purchase, ids_of
from eva_master.model.planning.estimate import Estimate
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.snapshot import RunView, Snapshot
from eva_master.model.values import by_id, replace
from eva_master.packing.room import may_buy_one
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import JobId, Millis, RunId


def with_current_estimates(snapshot: Snapshot) -> Snapshot:
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


def in_time_ms(run: RunView, job: JobView, now: Millis) -> int | None:
    """Time within which an instance has to be up so that a running task still runs there.

    Args:
        run: The task run.
        job: Its job, which says how long a stop and a start take.
        now: The time.

    Returns:
        Milliseconds, negative if the task ends before it could stop and start anywhere. `None` for
        any time: it does not run, or nothing is known of its end but an estimate by other tasks.
    """
    if not run.running or run.remaining is None:
        return None
    ends_in = run.remaining.ends_in_ms(now)
    return None if ends_in is None else ends_in - job.delays.change_ms


def ending(snapshot: Snapshot, timed: Collection[RunView]) -> Mapping[RunId, int]:
    """Task runs that would end before all new instances are up and they run there.

    Args:
        snapshot: The cluster.
        timed: The running task runs of which it is known when they end.

    Returns:
        Remaining time of each, see `in_time_ms`.
    """
    if not timed:
        return {}
    jobs = by_id(snapshot.jobs)
    longest = max((offering.type.boot_ms for offering in _on_sale(snapshot)), default=0)
    times: dict[RunId, int] = {}
    for run in timed:
        within = in_time_ms(run, jobs[run.job], snapshot.now_ms)
        if within is not None and within < longest:
            times[run.id] = within
    return times


def _on_sale(snapshot: Snapshot) -> Catalog:
    """Offerings of which one more may be launched now."""
    launched = Counter(ids_of(view.offering for view in snapshot.instances))

    def sells(offering: Offering) -> bool:
        owned = offering.purchase is Purchase.OWNED
        return not owned and may_buy_one(offering, launched) and offering.available(snapshot.now_ms)

    return tuple(filter(sells, snapshot.catalog))
