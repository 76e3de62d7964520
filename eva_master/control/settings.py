"""The control loop's own settings."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from eva_master.model.fleet.nodes import NodeTotals, OwnedNode
from eva_master.model.fleet.partitions import WHOLE, Partition, Partitions
from eva_master.model.planning.estimate import Estimates
from eva_master.model.planning.job_view import Delays
from eva_master.model.planning.snapshot import ROUND_WORK
from eva_master.model.planning.spot_choice import SpotChoice
from eva_master.model.planning.suspension import Preemption
from eva_master.model.tenants.quotas import NO_TENANCY, Tenancy
from eva_wire.values.ids import MILLION, InstanceId

NEVER_MS = 10**15
"""As a delay: what is so far ahead is not waited for."""


PATIENCE_MS = 1_800_000
"""For how long a job waits for limited room until it is kept for it, unless operators say so."""
NO_LIMIT = 10**15
"""As a number of jobs, tasks or instances."""
_NO_NODES = NodeTotals()


@dataclass(frozen=True, slots=True)
class Limits:
    """Largest amounts in use at a time; jobs and tasks count until they have ended.

    Attributes:
        tasks_per_job: Tasks of one job.
        tasks_per_user: Tasks of all jobs of one user. jobs_per_user: These jobs.
        waits_per_user: Dependencies of all jobs of one user.
        text_per_user: Characters of all jobs of one user, see `JobSpec.text`.
        tasks: Tasks of all jobs of the cluster. jobs: These jobs. waits: Dependencies of these
            jobs. text: Their characters.
        instances_per_job: Instances with tasks of one job.
        instances_per_user: Instances with tasks of one user.
        instances: Instances of the cluster, launching and terminating ones included.
        priority: The highest priority of a job that no operator submits.
        grace_period_ms: The longest grace period of a task, from SIGTERM to SIGKILL.
        max_cost: Charges of one owner's jobs in a calendar month, in micro-dollars.
        recall_grace_ms: The longest grace period where tenants take lent room back, and operators
            cancel jobs.
        shutdown_grace_ms: The longest grace period where the cluster or a worker ends.
    """

    tasks_per_job: int = NO_LIMIT
    tasks_per_user: int = NO_LIMIT
    jobs_per_user: int = NO_LIMIT
    waits_per_user: int = NO_LIMIT
    text_per_user: int = NO_LIMIT
    tasks: int = NO_LIMIT
    jobs: int = NO_LIMIT
    waits: int = NO_LIMIT
    text: int = NO_LIMIT
    instances_per_job: int = NO_LIMIT
    instances_per_user: int = NO_LIMIT
    instances: int = NO_LIMIT
    priority: int = NO_LIMIT
    grace_period_ms: int = NO_LIMIT
    max_cost: int = NO_LIMIT
    recall_grace_ms: int = NO_LIMIT
    shutdown_grace_ms: int = NO_LIMIT


@dataclass(frozen=True, slots=True)
class Settings:
    """Delays and limits; times in milliseconds.

    Attributes:
        round_period_ms: Longest time between planning rounds while anything is learned.
        round_gap_ms: Shortest time between plan requests; events within it share a round.
        round_grid_ms: Plans are requested at multiples of this only; 0 for any time.
        register_timeout_ms: Time after which an instance is terminated if it is up and its worker
            has not registered.
        start_timeout_ms: Time after which a task has failed if its start was ordered and it does
            not run.
        boot_backoff_ms: Pause before the next launch of an offering after an instance of it ended
            before any task ran there; doubles with each failure in a row.
        lost_worker_ms: Time after which an instance with a silent worker is terminated; its tasks
            start elsewhere once the cloud reports its end.
        unwanted_ms: Time after which an instance of the cluster that is not on record is
            terminated.
        restored_mark: A number, larger each time that the operator puts the journal back from a
            backup; 0 for never.
        worker_resend_ms: Time after which a command to a worker without effect is repeated.
        cloud_resend_ms: Time after which a command to the cloud without effect is repeated.
        sync_period_ms: Time between requests for full reports of the cloud and of workers with
            tasks.
        backoff_ms: Wait before the first retry of a failed task; doubles with each failure.
        backoff_limit_ms: The longest such wait.
        window_ms: Length of the windows in which throughput is measured.
        checkpoint_ms: Assumed time to checkpoint and stop a task, until the time is measured.
        launch_ms: Assumed time to start a task, until the time is measured.
        rebalance_ms: Time without launches of an offering after a rebalance recommendation for an
            instance of it, which its tasks leave; 0 to stay there.
        profile: Whether one task of a workload whose standalone throughput is unknown is kept from
            others until it has run alone for a window.
        gang_ports: First and last of the ports on which gangs meet.
        history_kept_ms: Time after which ended jobs and terminated instances leave memory; the
            journal keeps them.
        results_kept_ms: Time after which what ended jobs have stored is removed; `None` for never.
        catalog_period_ms: Time from one answer of the cloud about what it sells to the next request
            for one; `None` for a catalog that stays as it is.
        catalog_age_ms: Age of the catalog when the master starts; `None` if no cloud was asked.
        feed: Whether events are written for users, which no plan depends on.
        limits: Limits of one job, one user and the cluster.
        estimates: Source of run-time estimates where a job states none.
        preemption: Effect that a waiting job may have on running jobs of lower priority.
        preemption_across: Whether preemption reaches jobs of other partitions that hold the room it
            needs.
        patience: Milliseconds, by partition, that a job waits for limited room before the room is
            kept for it against jobs of the same priority; for ever in a partition without an entry.
        nodes: The owned nodes that may join, by name.
        partitions: Partitions of the cluster. In a divided cluster, plans of a partition are
            requested at multiples of its own `round_grid_ms`.
        tenancy: Quotas and budgets of tenants.
        spot_choice: See `SpotChoice`.
        price_limit_ppm: Highest price of a new instance as a multiple of the sum of its tasks'
            on-demand reservation prices, in millionths; `None` for any price.
        pool_share_ppm: The part of the work with little slack that may be in one spot pool, in
            millionths.
        round_work: Most work in a round, in microseconds of the machine on which
            `packing.round_work` was measured; counted, never timed.
    """

    round_period_ms: int = 300_000
    round_gap_ms: int = 1_000
    round_grid_ms: int = 0
    register_timeout_ms: int = 900_000
    start_timeout_ms: int = NEVER_MS
    boot_backoff_ms: int = 300_000
    lost_worker_ms: int = 300_000
    unwanted_ms: int = 0
    restored_mark: int = 0
    worker_resend_ms: int = 15_000
    cloud_resend_ms: int = 60_000
    sync_period_ms: int = 60_000
    backoff_ms: int = 5_000
    backoff_limit_ms: int = 600_000
    window_ms: int = 60_000
    checkpoint_ms: int = 8_000
    launch_ms: int = 47_000
    rebalance_ms: int = 0
    profile: bool = False
    gang_ports: tuple[int, int] = (20_000, 29_999)
    history_kept_ms: int = NEVER_MS
    results_kept_ms: int | None = None
    catalog_period_ms: int | None = None
    catalog_age_ms: int | None = None
    limits: Limits = Limits()
    estimates: Estimates = Estimates.POSTERIOR
    preemption: Preemption = Preemption.NEVER
    preemption_across: bool = False
    patience: Mapping[str, int] = field(default_factory=dict)
    nodes: Mapping[InstanceId, OwnedNode] = field(default_factory=dict)
    partitions: Partitions = WHOLE
    tenancy: Tenancy = NO_TENANCY
    spot_choice: SpotChoice = SpotChoice.LEARNED
    pool_share_ppm: int = MILLION
    price_limit_ppm: int | None = 4 * MILLION
    round_work: int = ROUND_WORK
    feed: bool = False
    _node_totals: Mapping[str, NodeTotals] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        nodes: defaultdict[str, list[OwnedNode]] = defaultdict(list)
        for name, node in self.nodes.items():
            nodes[self.partitions.of_node(name).name].append(node)
        totals = {name: NodeTotals.of(owned) for name, owned in nodes.items()}
        object.__setattr__(self, "_node_totals", totals)

    def nodes_of(self, partition: Partition) -> NodeTotals:
        """Sums over the owned nodes of a partition."""
        return self._node_totals.get(partition.name, _NO_NODES)

    @property
    def assumed_delays(self) -> Delays:
        """Delays of a job for which there is neither a hint nor a measurement."""
        return Delays(self.checkpoint_ms, self.launch_ms)
