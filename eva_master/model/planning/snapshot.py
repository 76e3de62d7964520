"""The cluster as a policy sees it: an immutable snapshot of one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eva_master.model.catalog import Catalog, Offering
from eva_master.model.job import TaskSpec
from eva_master.model.planning.claims import Claim
from eva_master.model.planning.estimate import Estimate
from eva_master.model.planning.job_view import JobView
from eva_master.model.resources import NOTHING, Resources
from eva_master.model.tenants.tenancy import TenantView
from eva_master.model.values import once, quick
from eva_wire.values.ids import MILLION, Family, InstanceId, JobId, Millis, RunId, Workload

PREVIEW = JobId("preview")
"""The job that nobody has submitted, in a snapshot that is made to see what would happen to it."""

ROUND_WORK = 10 * MILLION
"""Work that a round may do unless the settings say otherwise: ten seconds of the machine on which
`packing.round_work` was measured, in microseconds."""
_OVERDUE_PART = 4
_ROUNDED_PART = 8
"""A time that is told may be off from what it was made of by one part in so many."""


@quick
@dataclass(frozen=True, slots=True)
class RemainingWork:
    """Remaining work of a task, as standalone time.

    The standalone time is that of one task alone, without delays, on the family that sets its
    reservation price.

    Attributes:
        at_since_ms: Remaining milliseconds at `since_ms`.
        since_ms: Since when it has been running, so that the work decreases; `None` while it does
            not run.
        pace_ppm: Work done per elapsed time, in millionths.
        estimated: Whether the figure rests only on run times of other tasks.
        ran_ms: For an estimate: how long it had run at `since_ms`, as standalone time.
    """

    at_since_ms: int
    since_ms: Millis | None = None
    pace_ppm: int = MILLION
    estimated: bool = False
    ran_ms: int = 0

    def since(self, began: Millis) -> RemainingWork:
        """This remaining work for a task that has been running since another time."""
        return RemainingWork(self.at_since_ms, began, self.pace_ppm, self.estimated, self.ran_ms)

    def standalone_ms(self, now: Millis) -> int:
        """Remaining standalone time at `now` in milliseconds, not negative.

        A task whose run time is only estimated is never about to end: the result is at least a
        quarter of the time for which it has run.
        """
        done = self._done_ms(now)
        least = (self.ran_ms + done) // _OVERDUE_PART if self.estimated else 0
        return max(least, self.at_since_ms - done)

    def ends_in_ms(self, now: Millis) -> int | None:
        """Milliseconds until it ends at its stated or measured pace.

        `None` if it does not run, or if its run time is only estimated.
        """
        if self.estimated or self.since_ms is None or self.pace_ppm <= 0:
            return None
        return self.goes_on_ms(now)

    def goes_on_ms(self, now: Millis) -> int:
        """Milliseconds for which it goes on at its pace, an estimated run time included.

        For a task that does not run, that is its standalone time.
        """
        standalone_ms = self.standalone_ms(now)
        return standalone_ms * MILLION // self.pace_ppm if self.pace_ppm > 0 else standalone_ms

    def ran_by_ms(self, now: Millis) -> int:
        """For an estimate: how long it has run by `now`, as standalone time."""
        return self.ran_ms + self._done_ms(now)

    def longer(self, mean_ms: int, raised_ms: int) -> RemainingWork:
        """This remaining work, raised as tasks turn out to take longer.

        Args:
            mean_ms: The run time expected before.
            raised_ms: The run time expected now.
        """
        # The remaining work determines the whole only while it is above zero, and to two digits.
        whole = self.at_since_ms + self.ran_ms if self.at_since_ms else mean_ms
        like = abs(whole - mean_ms) * _ROUNDED_PART <= mean_ms
        longer = raised_ms if like else whole * raised_ms // mean_ms
        remaining = max(self.at_since_ms, longer - self.ran_ms)
        return RemainingWork(remaining, self.since_ms, self.pace_ppm, self.estimated, self.ran_ms)

    def _done_ms(self, now: Millis) -> int:
        if self.since_ms is None:
            return 0
        return max(0, now - self.since_ms) * self.pace_ppm // MILLION


@dataclass(frozen=True, slots=True)
class RunTime:
    """For how long a task run has run, as standalone time (see `RemainingWork`).

    Attributes:
        at_since_ms: Milliseconds by `since_ms`.
        since_ms: From when on it has been running.
        pace_ppm: How much is added to it in the time that passes, in millionths.
        expected: How long such a task runs, by all that is known but its own progress; `None` if
            nothing is.
    """

    at_since_ms: int
    since_ms: Millis
    pace_ppm: int = MILLION
    expected: Estimate | None = None

    def ms(self, now: Millis) -> int:
        """For how long it has run by `now`, in milliseconds."""
        return self.at_since_ms + max(0, now - self.since_ms) * self.pace_ppm // MILLION


@quick
@dataclass(frozen=True, slots=True)
class RunView:
    """A task run that is to be placed.

    Attributes:
        task: Its task without the program, with the name that its workload has in plans.
        instance: The instance where it is or is about to be, `None` if it has no place.
        pinned: In the middle of a start, stop or move: this round must not move it, and its room on
            `instance` is taken.
        running: Whether moving it would cost a checkpoint and a start.
        held: Whether the last plan found no room for it.
        remaining: Its remaining work, `None` if unknown; equal for all members of a gang.
        since_ms: Since when it has been waiting for a place; `None` if it has one.
        replica: Its number among the extra runs of its task, 0 for the task's own run. While a task
            has several runs in hand all of them are pinned.
        ran: For how long it has run, if its task may be given an extra run and never was.
        running_since_ms: Since when it has been running; `None` if it does not.
        long: Whether it has run for so long that it is no longer taken for a task of a short job.
        pool: The pool for whose room it stood in line when it got its place; empty if a plan gave
            it one.
        alone: In company it would be late for its deadline.
    """

    id: RunId
    job: JobId
    task: TaskSpec
    instance: InstanceId | None
    pinned: bool
    running: bool
    held: bool = False
    remaining: RemainingWork | None = None
    since_ms: Millis | None = None
    replica: int = 0
    ran: RunTime | None = None
    running_since_ms: Millis | None = None
    long: bool = False
    pool: str = ""
    alone: bool = False


@quick
@dataclass(frozen=True, slots=True)
class InstanceView:
    """A live instance.

    Attributes:
        residents: The task runs whose `RunView.instance` it is.
        ready: Whether its worker has registered; otherwise it is still booting.
        pool: Name of the pool that it stands in, or stood in before it was drained; empty if there
            is none.
        partition: Its partition; empty for the default one.
    """

    id: InstanceId
    offering: Offering
    residents: tuple[RunId, ...]
    ready: bool
    pool: str = ""
    partition: str = ""


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
class SharedRoom:
    """Room of an instance of another policy.

    Attributes:
        free: Its free room.
        own: Room taken by that policy's own tasks.
    """

    offering: Offering
    free: Resources
    own: Resources = NOTHING


@dataclass(frozen=True, slots=True)
class SharedInstance:
    """An instance of another policy, with its own tasks on it, that takes tasks now."""

    id: InstanceId
    room: SharedRoom


@dataclass(frozen=True, slots=True)
class BackPolicyRoom:
    """The part of the policy behind, as seen by the policy in front of it.

    Attributes:
        instances: Instances that may be members of a shared pool.
        waiting_ms: Since when a task run of the other policy has been waiting for a place, the
            longest of several; `None` if none waits.
    """

    instances: tuple[SharedInstance, ...] = ()
    waiting_ms: Millis | None = None


NO_BACK_POLICY = BackPolicyRoom()


@dataclass(frozen=True, slots=True)
class Leeway:
    """How much more may be launched by the operator's limits and budgets; `None` for any amount.

    Attributes:
        instances: So many instances at most.
        per_hour: Their prices together, in micro-dollars per hour.
    """

    instances: int | None = None
    per_hour: int | None = None


UNLIMITED = Leeway()


@quick
@dataclass(frozen=True, slots=True)
class Snapshot:
    """All information for a policy. The control loop builds it; nothing changes it.

    Attributes:
        now_ms: The time of the snapshot.
        catalog: Every offering; a policy checks availability and limits.
        jobs: Sorted by id, as are task runs and instances.
        arrivals: Number of jobs that have arrived since the cluster began, except jobs that ended
            in an open line before any plan saw them; `completions` does not count these either.
        completions: Number of jobs that have ended since the cluster began.
        throughput: Learned effects of co-location.
        standalone: Learned rates of tasks alone.
        profile: Whether a task is kept alone until its standalone throughput is known; see
            `packing.problem`.
        draining: Instances that take no new task and go once they are empty. Their task runs are
            not in the snapshot, unless they are to move. A plan may state one again as a member of
            a pool, unless an operator has it drained.
        beside: The part of the policy behind; only for a policy in front that shares its instances.
        joined: Jobs in an open line that no plan has seen so far; their tasks may run already.
        leeway: Room left by limits and budgets. Launches beyond it are cut, so a policy need not
            check it unless the order of jobs matters.
        tenants: The tenants with quotas, sorted by name; empty where there are none.
        claims: Room that is kept for waiting task runs, in order. `packing.claims.asking` shows
            policies the rest; a plan's use of kept room by others is cut.
        unclaimed: Whether the kept room of these claims is already left out of the snapshot.
        work: Upper limit of the round's work; see `packing.round_work`.
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
    draining: tuple[InstanceView, ...] = ()
    beside: BackPolicyRoom = NO_BACK_POLICY
    joined: frozenset[JobId] = frozenset()
    leeway: Leeway = UNLIMITED
    tenants: tuple[TenantView, ...] = ()
    claims: tuple[Claim, ...] = ()
    unclaimed: bool = False
    work: int = ROUND_WORK

    @property
    def waiting(self) -> Mapping[JobId, Mapping[RunId, RunView]]:
        """Task runs without a place that a plan may give one, by job and id."""
        return once(_waiting, self.runs)


def _waiting(runs: tuple[RunView, ...]) -> dict[JobId, dict[RunId, RunView]]:
    waiting: dict[JobId, dict[RunId, RunView]] = {}
    for run in [run for run in runs if run.instance is None and not run.pinned]:
        waiting.setdefault(run.job, {})[run.id] = run
    return waiting
