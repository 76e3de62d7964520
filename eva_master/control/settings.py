"""The control loop's own settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from eva_master.model.fleet.nodes import OwnedNode
from eva_master.model.fleet.partitions import WHOLE, Partitions
from eva_master.model.ids import MILLION, InstanceId
from eva_master.model.planning.estimate import Estimates
from eva_master.model.planning.quotas import NO_TENANCY, Tenancy
from eva_master.model.planning.snapshot import ROUND_WORK
from eva_master.model.planning.spot_choice import SpotChoice
from eva_master.model.planning.suspension import Preemption

NEVER_MS = 10**15
"""As a delay: what is so far ahead is not waited for."""


PATIENCE_MS = 1_800_000
"""For how long a job waits for limited room until it is kept for it, unless operators say so."""
NO_LIMIT = 10**15
"""As a number of jobs, tasks or instances."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much there may be at a time; jobs and tasks count until they have ended.

    Attributes:
        tasks_per_job: Tasks of one job.
        tasks_per_user: Tasks of all jobs of one user. jobs_per_user: These jobs.
        waits_per_user: Jobs that those of one user depend on, each as often as it is named.
        text_per_user: Characters of all jobs of one user, see `JobSpec.text`.
        tasks: Tasks of all jobs of the cluster. jobs: These jobs. waits, text: As for one user.
        instances_per_job: Instances on which tasks of one job are.
        instances_per_user: Instances on which tasks of one user are.
        instances: Instances of the cluster, those included that are being launched or given back.
        priority: The highest priority of a job that no operator submits.
        grace_period_ms: The longest grace period of a task, from SIGTERM to SIGKILL.
        recall_grace_ms: The same where tenants have lent room back, and operators cancel jobs.
        shutdown_grace_ms: The same where the cluster or a worker ends.
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
    recall_grace_ms: int = NO_LIMIT
    shutdown_grace_ms: int = NO_LIMIT


@dataclass(frozen=True, slots=True)
class Settings:
    """Delays and limits; times in milliseconds.

    Attributes:
        round_period_ms: A planning round at least this often while anything is learned.
        round_gap_ms: From one plan request to the next at least; events within it share a round.
        round_grid_ms: Plans are requested at multiples of this alone, 0 for at any time.
        register_timeout_ms: An instance whose worker has not registered this long after it came
            up is given back.
        start_timeout_ms: A task that has not begun to run this long after its start was ordered has
            failed.
        boot_backoff_ms: After an instance that ended before any task ran on it none of its offering
            is launched for so long; doubles with each failure in a row.
        lost_worker_ms: An instance whose worker has been silent for so long is given back; its
            tasks start elsewhere once the cloud says that it is gone.
        unwanted_ms: An instance of the cluster's that nobody asked for is terminated when it has
            been there for so long.
        worker_resend_ms: A command to a worker that shows no effect is repeated.
        cloud_resend_ms: A command to the cloud that shows no effect is repeated.
        sync_period_ms: Workers with tasks and the cloud are asked for the whole truth.
        backoff_ms: Before the first retry of a failed task; doubles with each failure.
        backoff_limit_ms: The longest such wait.
        window_ms: Over how long throughput is measured.
        checkpoint_ms: Assumed time to checkpoint and stop a task, until it is known better.
        launch_ms: Assumed time to start a task, until it is known better.
        rebalance_ms: An instance that the cloud recommends to leave is left, and none of its
            offering is launched for so long; 0 to stay there.
        profile: Whether one task of a workload whose standalone throughput is unknown is kept
            from others until it has run alone for a window.
        gang_ports: First and last of the ports on which gangs meet.
        history_kept_ms: Jobs that have ended and instances that are gone leave memory after so
            long; the journal keeps them.
        limits: How much one job, one user and all together may have.
        estimates: What run times are estimated from where none is stated.
        preemption: What a job that waits may do to running jobs of lower priority.
        preemption_across: Whether it may do so to those of other partitions, where these hold what
            it waits for.
        patience: For how many milliseconds a job waits for limited room until it is kept for it
            against jobs of the same priority, by partition; for ever in one that is not there.
        nodes: The owned nodes that may join, by name.
        partitions: How the cluster is divided. Where it is, plans of a partition are requested at
            multiples of its own `round_grid_ms`.
        tenancy: What tenants may have.
        spot_choice: How jobs with deadlines choose between spot instances, others and waiting.
        price_limit_ppm: How many times the sum of its tasks' reservation prices on demand a new
            instance may cost, in millionths; `None` for any price.
        pool_share_ppm: The part of the work with little time to lose that may be in one spot pool,
            in millionths.
        round_work: Work that a round may do at most, in microseconds of the machine on which
            `packing.round_work` was measured; it is counted, never timed.
    """

    round_period_ms: int = 300_000
    round_gap_ms: int = 1_000
    round_grid_ms: int = 0
    register_timeout_ms: int = 900_000
    start_timeout_ms: int = NEVER_MS
    boot_backoff_ms: int = 300_000
    lost_worker_ms: int = 300_000
    unwanted_ms: int = 0
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
