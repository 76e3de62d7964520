"""How long tasks waited for room, short and long ones apart, and what transient servers came to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean

from eva_lab.simulator.results.metrics import InstanceFigures, RunRecord, quantile
from eva_master.model.catalog import Purchase
from eva_wire.values.ids import MILLIS_PER_HOUR, RunId, job_of


@dataclass(frozen=True, slots=True)
class Waits:
    """For how long tasks of a kind waited, from the arrival of their job to their first start.

    Attributes:
        tasks: How many they are; all times are 0 if there are none. Times are seconds.
    """

    tasks: int = 0
    mean_s: float = 0.0
    p50_s: float = 0.0
    p90_s: float = 0.0
    p99_s: float = 0.0
    max_s: float = 0.0

    @staticmethod
    def of(waits_ms: Sequence[int]) -> Waits:
        """Summarise waiting times in milliseconds."""
        if not waits_ms:
            return Waits()
        seconds = [ms / 1000 for ms in sorted(waits_ms)]
        p50, p90, p99 = (quantile(seconds, share) for share in (0.5, 0.9, 0.99))
        return Waits(len(seconds), fmean(seconds), p50, p90, p99, seconds[-1])


@dataclass(frozen=True, slots=True)
class ShortTasks:
    """The figures of a run with short and long jobs.

    Attributes:
        short: Waits of tasks of short jobs.
        long: Waits of the other tasks.
        reruns: Attempts beyond the first of each task.
        transients_mean: Spot instances that were up, on average while jobs arrived.
        transients_peak: At most so many were up at a time.
        life_mean_h: How long such an instance was up, in hours; 0 if there was none.
        life_max_h: The longest.
    """

    short: Waits
    long: Waits
    reruns: int
    transients_mean: float
    transients_peak: int
    life_mean_h: float
    life_max_h: float


def short_tasks(record: RunRecord, short: Collection[str]) -> ShortTasks:
    """The figures of a run of which a record was kept.

    Args:
        record: Of the run.
        short: The names of the short jobs.
    """
    arrivals = {job.id: job.submitted_ms for job in record.jobs}
    is_short = {job.id: job.name in short for job in record.jobs}
    starts: dict[RunId, int] = {}
    for occupancy in record.occupancies:
        starts[occupancy.run] = min(occupancy.from_ms, starts.get(occupancy.run, occupancy.from_ms))
    waits: dict[bool, list[int]] = {True: [], False: []}
    for run, start in starts.items():
        job = job_of(run)
        waits[is_short[job]].append(start - arrivals[job])
    transient = [instance for instance in record.instances if instance.purchase is Purchase.SPOT]
    lives = [(instance.gone_ms - instance.up_ms) / MILLIS_PER_HOUR for instance in transient]
    span = min(arrivals.values(), default=0), max(arrivals.values(), default=0)
    return ShortTasks(
        Waits.of(waits[True]),
        Waits.of(waits[False]),
        len(record.occupancies) - len(starts),
        mean_up(transient, *span),
        peak_up(transient),
        fmean(lives) if lives else 0.0,
        max(lives, default=0.0),
    )


def mean_up(instances: Iterable[InstanceFigures], begin_ms: int, end_ms: int) -> float:
    """How many instances were up on average between two times."""
    up = (min(instance.gone_ms, end_ms) - max(instance.up_ms, begin_ms) for instance in instances)
    return sum(ms for ms in up if ms > 0) / max(1, end_ms - begin_ms)


def peak_up(instances: Iterable[InstanceFigures]) -> int:
    """How many instances were up at most at a time; one that goes makes room for one that comes."""
    events = sorted(
        (at, change)
        for instance in instances
        for at, change in ((instance.up_ms, 1), (instance.gone_ms, -1))
    )
    return max(accumulate(change for _, change in events), default=0)
