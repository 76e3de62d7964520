"""A job as a policy sees it, in groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eva_master.model.accounting.worth import Worth
from eva_master.model.job import JobSpec
from eva_master.model.planning.elastic import Elastic
from eva_master.model.planning.estimate import Estimate
from eva_master.model.values import quick
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import JobId, Millis, RunId


@dataclass(frozen=True, slots=True)
class GpuTime:
    """The time that a job has had GPUs, summed over them; it grows by itself while tasks run.

    Attributes:
        base_ms: Milliseconds at time 0, were it to grow all the time as it does now.
        gpus: How many GPUs its running tasks have now.
    """

    base_ms: int = 0
    gpus: int = 0

    def at_ms(self, now: Millis) -> int:
        """Milliseconds at a given time."""
        return self.base_ms + self.gpus * now


NO_GPU_TIME = GpuTime()


@dataclass(frozen=True, slots=True)
class DagView:
    """The rest of a DAG, for a job that is one of its stages.

    Attributes:
        label: Label shared by the DAGs of its kind.
        first: The stage that was submitted first; all jobs of one DAG name the same.
        submitted_ms: When the first of those that have not ended was submitted.
        waiting: Number of stages that wait for others; snapshots do not contain their jobs.
        waiting_ms: Expected work of these stages, in milliseconds of one task; stages without an
            estimate count nothing.
        likely_ms: The sum of these stages' medians, which heavy tails do not raise.
        ended: Number of ended stages of which a run time is remembered.
        ended_ms: Run time of their tasks, summed.
    """

    label: str
    first: JobId
    submitted_ms: Millis
    waiting: int = 0
    waiting_ms: int = 0
    likely_ms: int = 0
    ended: int = 0
    ended_ms: int = 0


@dataclass(frozen=True, slots=True)
class Due:
    """Deadline of a job that can still be kept, of known length.

    Attributes:
        at_ms: When the job is to be done.
        slack_ms: How long it may do nothing, beyond what is reserved for one change of place, if
            no neighbour slows it down from then on.
    """

    at_ms: Millis
    slack_ms: int


@quick
@dataclass(frozen=True, slots=True)
class JobProgress:
    """State of a job that its tasks change as they run and end: a change of it wants no plan.

    Attributes:
        estimate: Run time of one of its tasks, `None` if unknown; of several kinds, that of the
            longest.
        steps_left: Iterations that a gang still has to do, as of its last change, to a hundredth of
            all of them; `None` if unknown, and for arrays.
        attained: GPU time that it has had.
        lease_ms: Since when it has been running where it is: since the last of a gang's members
            began to run, or the first of an array's running tasks; `None` if it does not run.
        succeeded: Number of its tasks that have succeeded.
        failed: Number of an array's tasks that have failed for good.
        succeeded_ms: For an array, the summed standalone time of its tasks that have succeeded.
        pilots_left: Number of its pilots that have not ended: tasks that a line has or had
            `chosen`, or that a plan has named; `None` if it has no pilots.
        dag: The rest of its DAG; `None` if it is no stage of one.
    """

    estimate: Estimate | None = None
    steps_left: int | None = None
    attained: GpuTime = NO_GPU_TIME
    lease_ms: Millis | None = None
    succeeded: int = 0
    failed: int = 0
    succeeded_ms: int = 0
    pilots_left: int | None = None
    dag: DagView | None = None

    @property
    def over(self) -> int:
        """How many tasks have ended for good."""
        return self.succeeded + self.failed


@quick
@dataclass(frozen=True, slots=True)
class Delays:
    """Time that a change of a job's places takes.

    Attributes:
        checkpoint_ms: Time to checkpoint and stop, from the user's hint or learned.
        launch_ms: Time from start to first progress, from the user's hint or learned.
    """

    checkpoint_ms: int = 0
    launch_ms: int = 0

    @property
    def change_ms(self) -> int:
        """Time from the order to stop until the first progress elsewhere, room there permitting."""
        return self.checkpoint_ms + self.launch_ms


@quick
@dataclass(frozen=True, slots=True)
class ArrayView:
    """Tasks of a job.

    Attributes:
        size: Number of all of its tasks.
        unseen: Number of its tasks that wait and might be placed beside those in `runs`: a plan
            sees only a part of a large array.
        kinds: For an array of several kinds of tasks: the indexes of those of each; else empty.
    """

    size: int = 1
    unseen: int = 0
    kinds: tuple[Sequence[int], ...] = ()


@quick
@dataclass(frozen=True, slots=True)
class Sharing:
    """Number of runs that a job may have at once, where that is not fixed.

    Attributes:
        elastic: Sizes that the policy may choose, for an elastic gang. `runs` are the members that
            run at present, or would by the last decision; see `sizes.with_sizes`.
        replicas_left: Number of its tasks that may be given an extra run now; `None` if none ever
            may.
        forks: Number of further forks that may be given a place now; `None` if it has none.
            Policies see none of the others, which get the room that policies leave idle.
    """

    elastic: Elastic | None = None
    replicas_left: int | None = None
    forks: int | None = None


@dataclass(frozen=True, slots=True)
class Urgency:
    """Rank of a job among those of its priority.

    Attributes:
        due: Its standing against its deadline; `None` without a deadline that it may keep, and
            where its run time is unknown.
        ahead: Its rank among the jobs that go before others of their priority, lowest first: its
            slack if it would be late behind these, or minus its waiting time if others passed it
            for long; `None` for all other jobs.
        waits_for_spot: Whether it waits for spot instances by its own choice, with no task placed.
    """

    due: Due | None = None
    ahead: int | None = None
    waits_for_spot: bool = False


@quick
@dataclass(frozen=True, slots=True)
class JobTenancy:
    """Account of a job with its tenant.

    Attributes:
        worth: Worth of its completion, if its user states it.
        unlent: Why it is lent no room of other tenants; empty if it may borrow.
        held_ms: The sum of its waits before retries after failures, the present one counted whole.
        spoiled_ms: Duration of its failed attempts; for an array, of all tasks.
    """

    worth: Worth | None = None
    unlent: str = ""
    held_ms: int = 0
    spoiled_ms: int = 0


NO_PROGRESS = JobProgress()
NO_DELAYS = Delays()
ONE_TASK = ArrayView()
NOT_SHARED = Sharing()
NO_URGENCY = Urgency()
NO_ACCOUNT = JobTenancy()


@quick
@dataclass(frozen=True, slots=True)
class JobView:
    """A job with at least one task run that is to be placed.

    Attributes:
        spec: The job as it was submitted, without its tasks: `array.size` is their number, and
            `runs` are those to be placed.
        runs: Its task runs that want a place.
        submitted_ms: When it was submitted, or its predecessors had ended.
        priority: Its own, or that of a job which waits for it.
        partition: Its partition; empty for the default one.
    """

    id: JobId
    spec: JobSpec
    runs: tuple[RunId, ...]
    submitted_ms: Millis
    priority: int = 0
    partition: str = ""
    delays: Delays = NO_DELAYS
    progress: JobProgress = NO_PROGRESS
    array: ArrayView = ONE_TASK
    sharing: Sharing = NOT_SHARED
    urgency: Urgency = NO_URGENCY
    tenancy: JobTenancy = NO_ACCOUNT

    @property
    def stands_in_line(self) -> bool:
        """Whether its tasks may stand in a line: those of gangs of several may not."""
        alone = len(self.runs) == 1 and self.sharing.elastic is None
        return self.spec.kind is not JobKind.GANG or alone
