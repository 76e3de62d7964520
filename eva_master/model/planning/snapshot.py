"""The cluster as a policy sees it: an immutable snapshot of one moment."""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.model.catalog import Catalog, Offering
from eva_master.model.ids import Family, InstanceId, JobId, Millis, RunId, Workload
from eva_master.model.job import JobKind, TaskSpec

PREVIEW = JobId("preview")
"""The job that nobody has submitted, in a snapshot that is made to see what would happen to it."""


@dataclass(frozen=True, slots=True)
class RunView:
    """A task run that wants a place.

    Attributes:
        instance: Where it is or is about to be, `None` if it has no place.
        pinned: In the middle of a start, stop or move: not to be moved in this round, its room
            on `instance` is taken.
        running: Moving it would cost a checkpoint and a start.
        held: The last plan found no room for it.
    """

    id: RunId
    job: JobId
    task: TaskSpec
    instance: InstanceId | None
    pinned: bool
    running: bool
    held: bool = False


@dataclass(frozen=True, slots=True)
class JobView:
    """A job with at least one task run that wants a place.

    Attributes:
        runs: Its task runs that want a place.
        remaining_ms: Stand-alone running time that was left at `since_ms`, `None` if unknown; see
            `left_ms`.
        checkpoint_ms: Time to checkpoint and stop, from the user's hint or learned.
        launch_ms: Time from start to first progress, from the user's hint or learned.
        since_ms: From when on it has been running, so that less and less is left; `None` while
            it does not run.
    """

    id: JobId
    kind: JobKind
    runs: tuple[RunId, ...]
    submitted_ms: Millis
    priority: int
    remaining_ms: int | None
    checkpoint_ms: int
    launch_ms: int
    since_ms: Millis | None = None

    def left_ms(self, now: Millis) -> int | None:
        """Stand-alone running time left at `now`, not negative; `None` if unknown."""
        if self.remaining_ms is None or self.since_ms is None:
            return self.remaining_ms
        return max(0, self.remaining_ms - max(0, now - self.since_ms))


@dataclass(frozen=True, slots=True)
class InstanceView:
    """A live instance.

    Attributes:
        residents: The task runs whose `RunView.instance` it is.
        ready: Its worker has registered; otherwise it is still coming up.
    """

    id: InstanceId
    offering: Offering
    residents: tuple[RunId, ...]
    ready: bool


@dataclass(frozen=True, slots=True)
class ThroughputTable:
    """Observed co-location throughput.

    Attributes:
        observed: (workload, sorted multiset of the others' workloads) -> normalised throughput
            in millionths, 1 to 1,000,000; sorted by key.
    """

    observed: tuple[tuple[tuple[Workload, tuple[Workload, ...]], int], ...] = ()


@dataclass(frozen=True, slots=True)
class StandaloneRates:
    """Standalone throughput as it was measured.

    Attributes:
        measured: (workload, family) -> iterations per second in millionths; 0 for one that ran
            for long and reported none. Sorted by key.
    """

    measured: tuple[tuple[tuple[Workload, Family], int], ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a policy may know; built by the control loop, never changed.

    Attributes:
        now_ms: The time of the snapshot.
        catalog: Every offering; a policy checks availability and limits.
        jobs: Sorted by id, as are task runs and instances.
        arrivals: Jobs that arrived since the cluster began.
        completions: Jobs that ended since the cluster began.
        throughput: What was learned about co-location.
        standalone: What was learned about tasks on their own.
        profile: Whether a task is not to be packed with others until its standalone throughput
            is known, see `packing.problem`.
    """

    now_ms: Millis
    catalog: Catalog
    jobs: tuple[JobView, ...]
    runs: tuple[RunView, ...]
    instances: tuple[InstanceView, ...]
    arrivals: int = 0
    completions: int = 0
    throughput: ThroughputTable = ThroughputTable()
    standalone: StandaloneRates = StandaloneRates()
    profile: bool = False
