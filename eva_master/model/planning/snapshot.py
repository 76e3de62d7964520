"""The cluster as a policy sees it: an immutable snapshot of one moment."""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.model.catalog import Catalog, Offering
from eva_master.model.ids import MILLION, Family, InstanceId, JobId, Millis, RunId, Workload
from eva_master.model.job import JobKind, TaskSpec

PREVIEW = JobId("preview")
"""The job that nobody has submitted, in a snapshot that is made to see what would happen to it."""


@dataclass(frozen=True, slots=True)
class RemainingWork:
    """What a task still has to do, as the standalone time that it would take.

    That is the time for which one task would still run alone, without delays, on the family that
    sets its reservation price.

    Attributes:
        at_since_ms: Milliseconds that were left at `since_ms`.
        since_ms: From when on it has been running, so that less and less is left; `None` while it
            does not run.
        pace_ppm: How much of it is done in the time that passes, in millionths.
        estimated: Whether all that is known is how long earlier tasks of the workload took.
    """

    at_since_ms: int
    since_ms: Millis | None = None
    pace_ppm: int = MILLION
    estimated: bool = False

    def left_ms(self, now: Millis) -> int | None:
        """Milliseconds that are left at `now`, not negative.

        Returns:
            `None` if that is unknown: the task has run for longer than others of its workload.
        """
        done = 0
        if self.since_ms is not None:
            done = max(0, now - self.since_ms) * self.pace_ppm // MILLION
        if self.estimated and done >= self.at_since_ms:
            return None
        return max(0, self.at_since_ms - done)


@dataclass(frozen=True, slots=True)
class RunView:
    """A task run that is to be placed.

    Attributes:
        instance: Where it is or is about to be, `None` if it has no place.
        pinned: In the middle of a start, stop or move: not to be moved in this round, its room
            on `instance` is taken.
        running: Moving it would cost a checkpoint and a start.
        held: The last plan found no room for it.
        remaining: What it still has to do, `None` if that is unknown; one value for all of a gang.
    """

    id: RunId
    job: JobId
    task: TaskSpec
    instance: InstanceId | None
    pinned: bool
    running: bool
    held: bool = False
    remaining: RemainingWork | None = None


@dataclass(frozen=True, slots=True)
class JobView:
    """A job with at least one task run that is to be placed.

    Attributes:
        runs: Its task runs that want a place.
        checkpoint_ms: Time to checkpoint and stop, from the user's hint or learned.
        launch_ms: Time from start to first progress, from the user's hint or learned.
    """

    id: JobId
    kind: JobKind
    runs: tuple[RunId, ...]
    submitted_ms: Millis
    priority: int
    checkpoint_ms: int
    launch_ms: int


@dataclass(frozen=True, slots=True)
class InstanceView:
    """A live instance.

    Attributes:
        residents: The task runs whose `RunView.instance` it is.
        ready: Whether its worker has registered; otherwise it is still booting.
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
    """The measured standalone throughput of workloads.

    Attributes:
        measured: (workload, family) -> iterations per second in millionths; 0 if it ran for long
            without reporting any. Sorted by key.
    """

    measured: tuple[tuple[tuple[Workload, Family], int], ...] = ()


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that a policy may know. The control loop builds it; nothing changes it.

    Attributes:
        now_ms: The time of the snapshot.
        catalog: Every offering; a policy checks availability and limits.
        jobs: Sorted by id, as are task runs and instances.
        arrivals: Number of jobs that have arrived since the cluster began.
        completions: Number of jobs that have ended since the cluster began.
        throughput: What was learned about co-location.
        standalone: What was learned about tasks on their own.
        profile: Whether a task is kept alone until its standalone throughput is known; see
            `packing.problem`.
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
