"""Sums over everything that ever was, kept because nothing in memory remembers all of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from eva_master.model.accounting.ended_jobs import EndedJob
from eva_master.model.accounting.pool_costs import PoolCost
from eva_master.model.ids import Exact, Millis
from eva_master.model.states import JobState, RunState


@dataclass(frozen=True, slots=True)
class TenantTotals:
    """Sums over all jobs of one tenant, those that left memory included.

    Attributes:
        charged: What is booked of these jobs: their shares of instances.
        alone: What is booked of them as the cost without packing.
        jobs: How many are in each state; a state without jobs may be missing.
        month_ms: The beginning of the calendar month of the last booking.
        month_charged: What is booked of that month.
        value: What jobs were worth in the moments in which they succeeded, in micro-dollars.
        paid: For room of other tenants; beside what is charged, like all that follows.
        earned: For room that others used.
        received: What it was made whole with, in micro-dollars.
        given: What it gave so that others were made whole, in micro-dollars.
        gpu_ms: GPU time in which its jobs held room.
        borrowed_ms: The part of it on GPUs of other tenants.
        lent_thousandths: GPU time of its own that others held, in thousandths of milliseconds.
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
        # What is added is of no month.
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


@dataclass(frozen=True, slots=True)
class CostTotals:
    """What instances of one type, or the jobs of one owner, have cost.

    Attributes:
        charged: What is booked of them; of an owner the shares of instances.
        idle: Of a type, the part of it that no task used; of an owner nothing.
        alone: Of an owner, what is booked as the cost without packing; of a type nothing.
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


@dataclass(frozen=True, slots=True)
class PartitionTotals:
    """Sums over all that belongs or belonged to one partition.

    Attributes:
        charged: What is booked of its instances.
        idle: The part of it that no task used.
        arrivals: Jobs that have come into it: they arrived, or were moved there. Of the default
            partition they are not counted: they are the rest of the cluster's.
        completions: Jobs that have gone from it, likewise: they ended, or were moved elsewhere.
        month_ms: The beginning of the calendar month of the last booking.
        month_charged: What is booked of that month.
        jobs: Its jobs that have not ended, at present.
        tasks: The tasks of these.
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
    """Sums and counts over all records, those that left memory included.

    Attributes:
        charged: What is booked of all instances, open and closed.
        idle: The part of it that no task used.
        alone: What is booked of all jobs as the cost without packing.
        migrations: Times that task runs were stopped in order to run elsewhere.
        jobs: How many jobs are in each state; a state without jobs may be missing.
        runs: The same of task runs.
        tenants: The sums of each tenant that ever had a job. What they were charged and `idle` add
            up to `charged`.
        pools: What of `charged` and `idle` is for instances since they stood in a pool, by pool.
        partitions: The sums of each partition by the name on record. What they were charged adds up
            to `charged`.
        types: The costs of instances by the names of their types; those under the empty name are of
            none that is kept apart. What they were charged adds up to `charged`.
        owners: The costs of jobs by the names of their owners, likewise. What they were charged
            and `idle` add up to `charged`.
        suspended: How many of the pending jobs are suspended, by tenant. Follows from the records,
            and is not written.
        kept: The part of `idle` that instances cost which had emptied, and stayed for tasks that
            waited.
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
    suspended: Mapping[str, int] = field(default_factory=dict)
    kept: Exact = Exact(0)
    ended: tuple[EndedJob, ...] = ()
