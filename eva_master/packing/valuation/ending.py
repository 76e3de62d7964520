"""Tasks that end, as stated or measured, before they could run elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from eva_master.model.catalog import Catalog, Offering, Purchase
from eva_master.model.ids import Millis, RunId
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.snapshot import RunView, Snapshot


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
    return None if ends_in is None else ends_in - job.delays.checkpoint_ms - job.delays.launch_ms


def ending(snapshot: Snapshot) -> Mapping[RunId, int]:
    """Task runs that would end before all new instances are up and they run there.

    Args:
        snapshot: The cluster.

    Returns:
        Remaining time of each, see `in_time_ms`.
    """
    jobs = {job.id: job for job in snapshot.jobs}
    longest = max((offering.type.boot_ms for offering in _on_sale(snapshot)), default=0)
    times: dict[RunId, int] = {}
    for run in snapshot.runs:
        within = in_time_ms(run, jobs[run.job], snapshot.now_ms)
        if within is not None and within < longest:
            times[run.id] = within
    return times


def _on_sale(snapshot: Snapshot) -> Catalog:
    """Offerings of which one more may be launched now."""
    launched = Counter(view.offering.id for view in snapshot.instances)

    def sells(offering: Offering) -> bool:
        limited = offering.limit is not None and launched[offering.id] >= offering.limit
        owned = offering.purchase is Purchase.OWNED
        return not (owned or limited) and offering.available(snapshot.now_ms)

    return tuple(filter(sells, snapshot.catalog))
