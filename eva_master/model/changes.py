"""The changes of one turn of the control loop, with its accounts and rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from eva_master.model.accounting.pool_costs import Stood
from eva_master.model.feed import FeedEvent
from eva_master.model.planning.plan import Json
from eva_master.model.planning.reasons import Reasons
from eva_master.model.records import Instance, Job, TaskRun
from eva_master.model.values import quick
from eva_wire.values.ids import Exact, InstanceId, JobId, Millis


@dataclass(frozen=True, slots=True)
class Round:
    """The journalled record of one planning round.

    Attributes:
        figures: The plan's figures.
        launches: Number of instances launched. moves: Number of task runs told to move.
        reasons: Why it was planned so; `None` if not kept or not asked for.
    """

    number: int
    at_ms: Millis
    planned_ms: int
    launches: int
    moves: int
    figures: Mapping[str, int | float | str] = field(default_factory=dict)
    reasons: Reasons | None = None


@quick
@dataclass(frozen=True, slots=True)
class JobAccount:
    """The account of a job: its charges, and what they are compared with.

    Attributes:
        charged: Its share of the instances that it ran on.
        alone: Its cost on instances of its own; see the ledger.
        busy_ms: Task-milliseconds of running.
        replicas: The part of `charged` for extra runs of its tasks.
        spot: The part of `charged` for spot instances.
        spot_ms: The part of `busy_ms` on spot instances.
        listed: The amount `spot` at the on-demand prices of the same instances.
        interruptions: How often the cloud took back an instance that it was on.
    """

    job: JobId
    charged: Exact = Exact(0)
    alone: Exact = Exact(0)
    busy_ms: int = 0
    replicas: Exact = Exact(0)
    spot: Exact = Exact(0)
    spot_ms: int = 0
    listed: Exact = Exact(0)
    interruptions: int = 0

    def __add__(self, more: JobAccount) -> JobAccount:
        return JobAccount(
            self.job,
            charged=Exact(self.charged + more.charged),
            alone=Exact(self.alone + more.alone),
            busy_ms=self.busy_ms + more.busy_ms,
            replicas=Exact(self.replicas + more.replicas),
            spot=Exact(self.spot + more.spot),
            spot_ms=self.spot_ms + more.spot_ms,
            listed=Exact(self.listed + more.listed),
            interruptions=self.interruptions + more.interruptions,
        )


@quick
@dataclass(frozen=True, slots=True)
class InstanceAccount:
    """The account of an instance: its cost up to `until_ms`, and how much of it no task used.

    Attributes:
        until_ms: The time up to which the instance is booked; once closed, the time when it was
            gone.
        charged: The amount booked: price times milliseconds, and the billing minimum.
        idle: The part of `charged` that no task used.
        standing: Both amounts for the time since it stood in a pool, by pool.
    """

    instance: InstanceId
    until_ms: Millis
    charged: Exact = Exact(0)
    idle: Exact = Exact(0)
    closed: bool = False
    standing: Stood = ()


Deferred = Callable[[], Json]
"""A document that is made when it is written, of what does not change until then."""
Documents = dict[str, Json | Deferred]
"""Documents that have changed since they were written, by name."""


@quick
@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of one turn of the loop, written in one transaction of the journal.

    Attributes:
        values: Named documents: ``counters``, ``memory``, ``catalog`` (unavailability),
            ``learned``. JSON-able.
        explained: Jobs of whose tasks it was told anew why they wait; not written, since the first
            plan after a restart says it again.
        feed: Events that users are told of, by number.
    """

    jobs: tuple[Job, ...] = ()
    runs: tuple[TaskRun, ...] = ()
    instances: tuple[Instance, ...] = ()
    job_accounts: tuple[JobAccount, ...] = ()
    instance_accounts: tuple[InstanceAccount, ...] = ()
    rounds: tuple[Round, ...] = ()
    values: Mapping[str, Json | Deferred] = field(default_factory=dict)
    explained: tuple[JobId, ...] = ()
    feed: tuple[FeedEvent, ...] = ()

    @property
    def of_jobs(self) -> set[JobId]:
        """The jobs of which readers see something else now."""
        return {*(job.id for job in self.jobs), *(run.job for run in self.runs), *self.explained}

    def documents(self) -> dict[str, Json]:
        """The values as documents, with functions called."""
        return {name: entry() if callable(entry) else entry for name, entry in self.values.items()}

    def __bool__(self) -> bool:
        records = self.jobs or self.runs or self.instances
        accounts = self.job_accounts or self.instance_accounts
        return bool(records or accounts or self.rounds or self.values or self.feed)
