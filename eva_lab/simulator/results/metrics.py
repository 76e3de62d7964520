"""Metrics of a finished simulation. They are floats; no decision depends on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean, median

from eva_lab.simulator.cluster.attempt_log import Occupancy, RunMetrics
from eva_lab.simulator.cluster.cloud import SimulatedInstance
from eva_lab.simulator.results.fairness import alphas_of
from eva_master.model.accounting.totals import TenantTotals
from eva_master.model.catalog import Purchase
from eva_master.model.changes import Round
from eva_master.model.records import Job
from eva_master.model.tenants.tenancy import Quota
from eva_wire.values.bounds import DEFAULT_TENANT
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR, InstanceId, Millis

_USD = MILLION * MILLIS_PER_HOUR
"""One dollar as an `eva_wire.values.ids.Exact`."""


@dataclass(frozen=True, slots=True)
class JobFigures:
    """One job's life, in milliseconds of virtual time.

    Attributes:
        executing_ms: How long all of its tasks ran, or any task of an array.
        moving_ms: How long it made progress in that time; of an array the sum over its tasks.
        alone_ms: How long it would have taken alone, likewise.
        moves: How often its tasks moved to another instance.
        id: As its tasks' runs name it.
        due_ms: When it was to be done; `None` if it had no deadline.
    """

    name: str
    workload: str
    tasks: int
    submitted_ms: int
    finished_ms: int
    executing_ms: int
    moving_ms: int
    alone_ms: float
    moves: int
    tenant: str = DEFAULT_TENANT
    partition: str = ""
    id: str = ""
    due_ms: int | None = None

    @property
    def late_ms(self) -> int:
        """By how much it missed its deadline, 0 if it kept it or had none."""
        return 0 if self.due_ms is None else max(0, self.finished_ms - self.due_ms)

    @property
    def jct_ms(self) -> int:
        """Job completion time, from arrival to end."""
        return self.finished_ms - self.submitted_ms


@dataclass(frozen=True, slots=True)
class DeadlineFigures:
    """Kept and missed deadlines.

    Attributes:
        jobs: How many have any.
        missed: How many of them were late, and `late_max_h` by how much the latest was.
    """

    jobs: int
    missed: int
    late_max_h: float

    @classmethod
    def of(cls, jobs: Iterable[JobFigures]) -> DeadlineFigures | None:
        """Figures of some jobs, `None` if none has a deadline."""
        late = [job.late_ms for job in jobs if job.due_ms is not None]
        if not late:
            return None
        return cls(len(late), sum(lateness > 0 for lateness in late), max(late) / MILLIS_PER_HOUR)


@dataclass(frozen=True, slots=True)
class InstanceFigures:
    """One instance's life, in milliseconds of virtual time, and its bill."""

    id: InstanceId
    type: str
    requested_ms: int
    up_ms: int
    gone_ms: int
    cost_usd: float
    purchase: Purchase = Purchase.ON_DEMAND


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The detailed record of a run; empty unless it was asked for.

    Attributes:
        rounds: Planning rounds.
        occupancies: Attempts on instances. Two consecutive ones of one task run on different
            instances are a move.
        jobs: Jobs that finished.
        instances: Instances that were billed.
    """

    rounds: tuple[Round, ...] = ()
    occupancies: tuple[Occupancy, ...] = ()
    jobs: tuple[JobFigures, ...] = ()
    instances: tuple[InstanceFigures, ...] = ()


@dataclass(frozen=True, slots=True)
class Planning:
    """Seconds of real time that the policy took; not compared when results are."""

    mean_s: float = 0.0
    p99_s: float = 0.0
    max_s: float = 0.0
    total_s: float = 0.0

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Planning:
        """Summarise the times of all decisions."""
        if not seconds:
            return cls()
        return cls(fmean(seconds), quantile(seconds, 0.99), max(seconds), sum(seconds))


@dataclass(frozen=True, slots=True)
class TenantFigures:
    """Results of one tenant's jobs.

    Attributes:
        cost_usd: Their shares of instances; with what is idle, they add up to the run's cost.
        jct_mean_h: Mean over its jobs, as is `idle_mean_h`; see
            `SimulationOutcome`.
        value_usd: Worth of its jobs when they succeeded.
        gain_usd: That, and what the tenant earned and received, less what it paid and gave.
        alpha: Its part of all gains over its part of all quotas; `None` if it has no quota.
    """

    tenant: str
    jobs: int
    cost_usd: float
    jct_mean_h: float
    idle_mean_h: float
    value_usd: float = 0.0
    gain_usd: float = 0.0
    alpha: float | None = None


def by_tenant(
    jobs: Sequence[JobFigures], sums: Mapping[str, TenantTotals], quotas: Mapping[str, Quota]
) -> tuple[TenantFigures, ...]:
    """The figures of each tenant, by name; none if all jobs are the default tenant's.

    Args:
        jobs: Jobs that have ended.
        sums: Booked sums of each tenant.
        quotas: Of the tenants that have one.
    """
    groups: dict[str, list[JobFigures]] = {}
    for job in jobs:
        groups.setdefault(job.tenant, []).append(job)
    if groups.keys() <= {DEFAULT_TENANT}:
        return ()
    gains = {name: _gain(of) for name, of in sums.items()}
    brought = {name: sum(count for _, count in quota) for name, quota in quotas.items()}
    whole = sum(brought.values())
    alphas = alphas_of(gains, {name: gpus / whole for name, gpus in brought.items() if gpus})
    return tuple(
        TenantFigures(
            tenant,
            len(group),
            usd(sums[tenant].charged),
            fmean(job.jct_ms / MILLIS_PER_HOUR for job in group),
            fmean((job.jct_ms - job.executing_ms) / MILLIS_PER_HOUR for job in group),
            sums[tenant].value / MILLION,
            gains[tenant],
            alphas.get(tenant),
        )
        for tenant, group in sorted(groups.items())
    )


def _gain(of: TenantTotals) -> float:
    once = of.value + of.received - of.given
    return once / MILLION + usd(of.earned - of.paid)


@dataclass(frozen=True, slots=True)
class PartitionFigures:
    """Results of one partition.

    Attributes:
        jobs: Jobs that ended there.
        cost_usd: Of its instances, idle time included; they add up to the run's cost.
        jct_mean_h: Mean over its jobs, 0 if there were none, as is `idle_mean_h`; see
            `SimulationOutcome`.
    """

    partition: str
    jobs: int
    cost_usd: float
    jct_mean_h: float
    idle_mean_h: float


def by_partition(
    jobs: Sequence[JobFigures], charged: Mapping[str, int]
) -> tuple[PartitionFigures, ...]:
    """The figures of each partition.

    Args:
        jobs: Jobs that have ended.
        charged: Exact costs of each partition's instances.
    """
    groups: dict[str, list[JobFigures]] = {name: [] for name in charged}
    for job in jobs:
        groups[job.partition].append(job)
    return tuple(
        PartitionFigures(
            name,
            len(group),
            usd(charged[name]),
            fmean([job.jct_ms / MILLIS_PER_HOUR for job in group] or [0.0]),
            fmean([(job.jct_ms - job.executing_ms) / MILLIS_PER_HOUR for job in group] or [0.0]),
        )
        for name, group in groups.items()
    )


@dataclass(frozen=True, slots=True)
class SimulationOutcome:
    """The metrics of one run, in hours and dollars.

    Attributes:
        cost_usd: Cost of all instances, from running to gone.
        norm_throughput_mean: Mean over jobs of the time it takes alone over the time it made
            progress.
        idle_mean_h: Mean over jobs of the completion time less the time that all its tasks ran.
        migrations_per_job: Moves of tasks per job; `migrations_per_task` per task.
        tasks_per_instance: Mean over the time that instances ran, as are the allocations, which are
            shares of the running capacity.
        full_share: Share of full reconfigurations among the rounds that changed anything.
        events: Number of events that the loop handled; `steps`: number of its turns.
        end_h: When the last instance was gone.
        planning: Time of decisions, the only field that differs between runs of one seed.
        tenants: By name; empty where no trace and no journal names any.
        partitions: In the order of the settings; empty if the cluster is not divided.
        deadlines: `None` if no job has any.
    """

    jobs_finished: int
    cost_usd: float
    jct_mean_h: float
    jct_median_h: float
    jct_p95_h: float
    idle_mean_h: float
    norm_throughput_mean: float
    migrations_per_job: float
    migrations_per_task: float
    instances_launched: int
    tasks_per_instance: float
    allocation_gpu: float
    allocation_cpu: float
    allocation_memory: float
    full_share: float
    rounds: int
    events: int
    steps: int
    end_h: float
    planning: Planning = field(default=Planning(), compare=False)
    record: RunRecord = field(default=RunRecord(), repr=False)
    tenants: tuple[TenantFigures, ...] = ()
    partitions: tuple[PartitionFigures, ...] = ()
    deadlines: DeadlineFigures | None = None

    def row(self) -> dict[str, float]:
        """All metrics of the whole run except planning times, for JSON."""
        kept = {**asdict(self)}
        kept.pop("planning")
        kept.pop("record")
        kept.pop("tenants")
        kept.pop("partitions")
        kept.pop("deadlines")
        return kept


def quantile(values: Sequence[float], share: float) -> float:
    """The quantile of sorted values, interpolated linearly between two of them."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * share
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


@dataclass(frozen=True, slots=True)
class CapacityTime:
    """The capacity of instances while they ran, times the time."""

    up_ms: int = 0
    gpu_ms: int = 0
    milli_cpu_ms: int = 0
    mib_ms: int = 0
    cost: int = 0

    @classmethod
    def of(cls, machines: Mapping[InstanceId, SimulatedInstance]) -> CapacityTime:
        """Sum over machines, all of which must be gone."""
        up = gpus = cpus = memory = cost = 0
        for machine in machines.values():
            span, room = uptime_ms(machine), machine.offering.type.capacity
            up += span
            gpus += span * room.gpus
            cpus += span * room.milli_cpus
            memory += span * room.memory_mib
            cost += charge(machine)
        return cls(up, gpus, cpus, memory, cost)


def uptime_ms(machine: SimulatedInstance, now: int | None = None) -> int:
    """How long a machine ran; `now` is needed for one that is not gone."""
    until = now if machine.gone_ms is None else machine.gone_ms
    assert machine.up_ms is not None
    assert until is not None
    return until - machine.up_ms


def charge(machine: SimulatedInstance, now: int | None = None) -> int:
    """The bill of a machine (see `eva_wire.values.ids.Exact`), up to `now` if it is not gone."""
    whole = max(uptime_ms(machine, now), machine.offering.minimum_ms)
    if not machine.paid:
        return machine.offering.price * whole
    assert machine.up_ms is not None
    exact, since, end = 0, machine.up_ms, machine.up_ms + whole
    for until, price in machine.paid:
        exact += price * max(0, min(until, end) - since)
        since = Millis(max(since, until))
    return exact + machine.offering.price * max(0, end - since)


def usd(exact: int) -> float:
    """Convert an exact amount to dollars."""
    return exact / _USD


def instance_figures(machine: SimulatedInstance, requested_ms: Millis) -> InstanceFigures:
    """The figures of a machine that is gone, for the record."""
    assert machine.up_ms is not None
    assert machine.gone_ms is not None
    kind = machine.offering.type.name
    cost = usd(charge(machine))
    return InstanceFigures(
        machine.instance,
        kind,
        requested_ms,
        machine.up_ms,
        machine.gone_ms,
        cost,
        machine.offering.purchase,
    )


def job_figures(job: Job, run_metrics: RunMetrics, alone_ms: float, moves: int) -> JobFigures:
    """The figures of a job that has ended.

    Args:
        job: Its record.
        run_metrics: Of the simulation.
        alone_ms: See `JobFigures`.
        moves: Of all its tasks.
    """
    assert job.finished_ms is not None
    executed, deadline = run_metrics.executed.get(job.id), job.spec.deadline
    return JobFigures(
        job.spec.name,
        job.spec.tasks[0].workload,
        len(job.spec.tasks),
        job.submitted_ms,
        job.finished_ms,
        executed.covered_ms if executed else 0,
        run_metrics.moving_ms.get(job.id, 0),
        alone_ms,
        moves,
        job.spec.tenant,
        job.partition,
        job.id,
        None if deadline is None else deadline.due_ms(job.submitted_ms),
    )


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts that the simulation collected on the way."""

    launched: int
    rounds: int
    reconfigurations: int
    full: int
    events: int
    steps: int
    end_ms: int


def outcome(
    jobs: Sequence[JobFigures],
    run_metrics: RunMetrics,
    machines: Mapping[InstanceId, SimulatedInstance],
    counts: Counts,
    *,
    planning: Planning,
    record: RunRecord,
) -> SimulationOutcome:
    """Sum up a run in which at least one job has finished."""
    offered = CapacityTime.of(machines)
    jcts = [job.jct_ms / MILLIS_PER_HOUR for job in jobs]
    moves = sum(job.moves for job in jobs)
    return SimulationOutcome(
        jobs_finished=len(jobs),
        cost_usd=usd(offered.cost),
        jct_mean_h=fmean(jcts),
        jct_median_h=median(jcts),
        jct_p95_h=quantile(jcts, 0.95),
        idle_mean_h=fmean((job.jct_ms - job.executing_ms) / MILLIS_PER_HOUR for job in jobs),
        norm_throughput_mean=fmean(_normalised(job) for job in jobs),
        migrations_per_job=moves / len(jobs),
        migrations_per_task=moves / sum(job.tasks for job in jobs),
        instances_launched=counts.launched,
        tasks_per_instance=_share(run_metrics.task_ms, offered.up_ms),
        allocation_gpu=_share(run_metrics.gpu_ms, offered.gpu_ms),
        allocation_cpu=_share(run_metrics.milli_cpu_ms, offered.milli_cpu_ms),
        allocation_memory=_share(run_metrics.mib_ms, offered.mib_ms),
        full_share=_share(counts.full, counts.reconfigurations),
        rounds=counts.rounds,
        events=counts.events,
        steps=counts.steps,
        end_h=counts.end_ms / MILLIS_PER_HOUR,
        planning=planning,
        record=record,
        deadlines=DeadlineFigures.of(jobs),
    )


def _normalised(job: JobFigures) -> float:
    return min(1.0, job.alone_ms / job.moving_ms) if job.moving_ms else 1.0


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0
