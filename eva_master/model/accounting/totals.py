"""Sums over everything that ever was, kept because nothing in memory remembers all of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from eva_master.model.accounting.ended_jobs import EndedJob
from eva_master.model.accounting.months import MonthCharge
from eva_master.model.accounting.pool_costs import PoolCost
from eva_master.model.arithmetic.calendar import DAY_MS, date_of, parts_by_day
from eva_master.model.values import quick, replace
from eva_wire.values.ids import Exact, Millis
from eva_wire.values.states import JobState, RunState


@quick
@dataclass(frozen=True, slots=True)
class TenantTotals:
    """Sums over all jobs of one tenant, also those that have left memory.

    Attributes:
        charged: Booked charges of these jobs: their shares of instances.
        alone: Booked cost of these jobs without packing.
        jobs: Number of jobs in each state; a state without jobs may be missing.
        month_ms: The beginning of the calendar month of the last booking.
        month_charged: Booked charges of that month.
        value: Worth of jobs at the moments when they succeeded, in micro-dollars.
        paid: Payments for room of other tenants. All sums from here on are no part of
            `charged`.
        earned: Payments received for room that other tenants used.
        received: Compensation received from other tenants, in micro-dollars.
        given: Compensation given to other tenants, in micro-dollars.
        gpu_ms: GPU time for which its jobs held room, in milliseconds.
        borrowed_ms: The part of `gpu_ms` on GPUs of other tenants.
        lent_thousandths: Time for which others held its own GPUs, in thousandths of milliseconds.
    """

    charged: Exact = Exact(0)
    alone: Exact = Exact(0)
    jobs: Mapping[JobState, int] = field(default_factory=dict)
    month_ms: Millis = Millis(0)
    month_charged: Exact = Exact(0)
    value: int = 0
    paid: Exact = Exact(0)
    earned: Exact = Exact(0)
    received: int = 0
    given: int = 0
    gpu_ms: int = 0
    borrowed_ms: int = 0
    lent_thousandths: int = 0

    def __add__(self, more: TenantTotals) -> TenantTotals:
        # The sums added here belong to no month.
        jobs = dict(self.jobs)
        for state, count in more.jobs.items():
            jobs[state] = jobs.get(state, 0) + count
        return replace(
            self,
            charged=Exact(self.charged + more.charged),
            alone=Exact(self.alone + more.alone),
            jobs=jobs,
            value=self.value + more.value,
            paid=Exact(self.paid + more.paid),
            earned=Exact(self.earned + more.earned),
            received=self.received + more.received,
            given=self.given + more.given,
            gpu_ms=self.gpu_ms + more.gpu_ms,
            borrowed_ms=self.borrowed_ms + more.borrowed_ms,
            lent_thousandths=self.lent_thousandths + more.lent_thousandths,
        )

    @property
    def own_ms(self) -> int:
        """GPU time in which its jobs held room within what it brought."""
        return max(0, self.gpu_ms - self.borrowed_ms)

    @property
    def lent_ms(self) -> int:
        """GPU time of its own that others held, in whole milliseconds."""
        return self.lent_thousandths // 1_000


NO_TOTALS = TenantTotals()


@quick
@dataclass(frozen=True, slots=True)
class CostTotals:
    """Costs of some instances, such as those of one type, of some jobs or of a day.

    Attributes:
        charged: Charges; of jobs, their shares of instances.
        idle: The part of `charged` that no task used; of jobs, zero.
        alone: The cost of jobs without packing; of instances, zero.
    """

    charged: Exact = Exact(0)
    idle: Exact = Exact(0)
    alone: Exact = Exact(0)

    def __add__(self, more: CostTotals) -> CostTotals:
        return CostTotals(
            Exact(self.charged + more.charged),
            Exact(self.idle + more.idle),
            Exact(self.alone + more.alone),
        )

    def __sub__(self, less: CostTotals) -> CostTotals:
        return CostTotals(
            Exact(self.charged - less.charged),
            Exact(self.idle - less.idle),
            Exact(self.alone - less.alone),
        )

    def by_day(self, since: Millis, until: Millis) -> Iterator[tuple[str, CostTotals]]:
        """Divide costs of a stretch of time, in which nothing changed, by day (UTC).

        Args:
            since: Beginning of the stretch.
            until: Its end.

        Yields:
            The date of each day, with its costs.
        """
        day = min(since, until) // DAY_MS
        if until <= (day + 1) * DAY_MS:
            yield date_of(day), self
            return
        parts = (parts_by_day(sums, since, until) for sums in (self.charged, self.idle, self.alone))
        for (day, charged), (_, idle), (_, alone) in zip(*parts, strict=True):
            yield date_of(day), CostTotals(Exact(charged), Exact(idle), Exact(alone))


NO_COSTS = CostTotals()


@quick
@dataclass(frozen=True, slots=True)
class PartitionTotals:
    """Sums over all jobs and instances that belong or belonged to one partition.

    Attributes:
        charged: Booked charges of its instances.
        idle: The part of `charged` that no task used.
        arrivals: Jobs that arrived in it or were moved there. Not counted for the default
            partition, which has the rest of the cluster's.
        completions: Jobs that ended in it or were moved elsewhere. Not counted for the default
            partition.
        month_ms: The beginning of the calendar month of the last booking.
        month_charged: Booked charges of that month.
        jobs: Its jobs that have not ended.
        tasks: The number of tasks of these jobs.
    """

    charged: Exact = Exact(0)
    idle: Exact = Exact(0)
    arrivals: int = 0
    completions: int = 0
    month_ms: Millis = Millis(0)
    month_charged: Exact = Exact(0)
    jobs: int = 0
    tasks: int = 0


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums and counts over all records, also those that have left memory.

    Attributes:
        charged: Booked charges of all instances, open and closed.
        idle: The part of `charged` that no task used.
        alone: Booked cost of all jobs without packing.
        migrations: Times that task runs were stopped in order to run elsewhere.
        jobs: Number of jobs in each state; a state without jobs may be missing.
        runs: Number of task runs in each state; a state without task runs may be missing.
        tenants: The sums of each tenant that ever had a job. Their `charged` and the cluster's
            `idle` add up to `charged`.
        pools: The parts of `charged` and `idle` of instances since they stood in a pool, by pool.
        partitions: The sums of each partition by the name on record. Their `charged` adds up to
            `charged`.
        types: Costs of instances by type name; the empty name has types that are not kept apart.
            Their `charged` adds up to `charged`.
        owners: Costs of jobs by owner name; the empty name has owners that are not kept apart.
            Their `charged` and the cluster's `idle` add up to `charged`.
        workloads: Costs of tasks by workload, as far as workloads are kept apart.
        labels: Costs of jobs by label, as `KEY=VALUE`, as far as labels are kept apart. A job
            counts for each of its labels.
        days: Costs of days by date, as far as days are kept.
        parts: Costs of volumes and of addresses; all else is for instances themselves.
        owner_months: Charges of the jobs of each owner in the month of the last booking.
        suspended: How many of the pending jobs are suspended, by tenant. Derived from the records,
            and not written.
        kept: The part of `idle` of instances that had emptied and were kept for waiting tasks.
        ended: Jobs that ended where tenants lend to each other, since the last plan there.
    """

    charged: Exact = Exact(0)
    idle: Exact = Exact(0)
    alone: Exact = Exact(0)
    migrations: int = 0
    jobs: Mapping[JobState, int] = field(default_factory=dict)
    runs: Mapping[RunState, int] = field(default_factory=dict)
    tenants: Mapping[str, TenantTotals] = field(default_factory=dict)
    pools: Mapping[str, PoolCost] = field(default_factory=dict)
    partitions: Mapping[str, PartitionTotals] = field(default_factory=dict)
    types: Mapping[str, CostTotals] = field(default_factory=dict)
    owners: Mapping[str, CostTotals] = field(default_factory=dict)
    workloads: Mapping[str, CostTotals] = field(default_factory=dict)
    labels: Mapping[str, CostTotals] = field(default_factory=dict)
    days: Mapping[str, CostTotals] = field(default_factory=dict)
    parts: Mapping[str, CostTotals] = field(default_factory=dict)
    owner_months: Mapping[str, MonthCharge] = field(default_factory=dict)
    suspended: Mapping[str, int] = field(default_factory=dict)
    kept: Exact = Exact(0)
    ended: tuple[EndedJob, ...] = ()
