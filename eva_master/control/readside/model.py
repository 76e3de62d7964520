"""The cluster as of one commit, as `eva_master.ports.reading.ReadModel`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields

from eva_master.control.measure import ledger, remaining, throughput
from eva_master.control.planning.preview import hypothetical
from eva_master.control.readside.persistent_map import PersistentMap
from eva_master.control.settings import Settings
from eva_master.control.state.counters import Counters
from eva_master.control.state.records import total_demand
from eva_master.control.state.view_cache import ViewCache
from eva_master.learning.colocation import Key, lookup
from eva_master.learning.interruptions import Interruptions
from eva_master.learning.knowledge import Knowledge
from eva_master.learning.standalone import StandaloneTable
from eva_master.model.accounting.totals import Totals
from eva_master.model.catalog import Catalog
from eva_master.model.changes import InstanceAccount, JobAccount
from eva_master.model.events import CloudTrouble
from eva_master.model.ids import Exact, InstanceId, JobId, Millis, RunId, run_id
from eva_master.model.job import JobSpec, TaskSpec
from eva_master.model.planning.plan import PolicyMemory
from eva_master.model.planning.snapshot import Snapshot, StandaloneRates, ThroughputTable
from eva_master.model.records import Instance, Job, TaskRun
from eva_master.model.resources import Resources
from eva_master.model.states import LIVE
from eva_master.packing.valuation.job_valuation import JobValuation, Rates, Reservation
from eva_master.ports.reading import CostSums, InstanceRecord, JobRecord, LearnedTables, Outlook

_JOBS_REMEMBERED = 16_384
"""Jobs whose reservations readers share at most."""


class ReadersValuation:
    """A valuation that readers share as long as prices and measured rates stay the same.

    It is made by the first reader who asks. Two that ask at once may both work something out; they
    come to the same.
    """

    def __init__(self, catalog: Catalog, standalone: StandaloneRates) -> None:
        self.sources = (catalog, standalone)
        self._valuation: JobValuation | None = None
        self._reservations: dict[JobId, tuple[Reservation, ...]] = {}

    def of(self, spec: JobSpec) -> tuple[Reservation, ...]:
        """The reservation of each task of a job."""
        return self._made().of(spec)

    def rates(self, task: TaskSpec) -> Rates:
        """Standalone rates of a task."""
        return self._made().rates(task)

    def _made(self) -> JobValuation:
        if self._valuation is None:
            self._valuation = JobValuation(*self.sources)
        return self._valuation

    def of_job(self, job: Job) -> tuple[Reservation, ...]:
        """The same of a job that is active, which is remembered."""
        found = self._reservations.get(job.id)
        if found is None:
            if len(self._reservations) >= _JOBS_REMEMBERED:
                self._reservations = {}
            found = self._reservations[job.id] = self.of(job.spec)
        return found


@dataclass(frozen=True, slots=True)
class ClusterModel:
    """All that a reader may ask for; see `eva_master.ports.reading.ReadModel`.

    It also has what `control.state.records.Records` asks for, so that amounts are projected here
    by the functions that book them in the control loop.
    """

    at_ms: Millis
    settings: Settings
    jobs: PersistentMap[JobId, Job]
    runs: PersistentMap[RunId, TaskRun]
    instances: PersistentMap[InstanceId, Instance]
    active: PersistentMap[JobId, Job]
    live: PersistentMap[InstanceId, Instance]
    job_accounts: PersistentMap[JobId, JobAccount]
    instance_accounts: PersistentMap[InstanceId, InstanceAccount]
    names: PersistentMap[tuple[str, str], JobId]
    """The newest job that is known of each owner and name."""
    residents: PersistentMap[InstanceId, tuple[RunId, ...]]
    sessions: PersistentMap[InstanceId, int]
    totals: Totals
    counters: Counters
    catalog: Catalog
    learned: Knowledge
    interruptions: Interruptions
    trouble: CloudTrouble
    memory: PolicyMemory | None
    prices: ReadersValuation

    # -- records ---------------------------------------------------------------------------------

    @property
    def rounds(self) -> int:
        """How many planning rounds there were."""
        return self.counters.rounds

    @property
    def connected(self) -> int:
        """How many workers have a session."""
        return len(self.sessions)

    @property
    def throughput(self) -> ThroughputTable:
        """What was learned about co-location."""
        return self.learned.throughput

    @property
    def standalone(self) -> StandaloneTable:
        """What was learned about tasks on their own."""
        return self.learned.standalone

    def find(self, owner: str, reference: str) -> Job | None:
        """See `ReadModel.find`."""
        job: Job | None = self.jobs.get(JobId(reference))
        return self.newest_named(owner, reference) if job is None else job

    def newest_named(self, owner: str, name: str) -> Job | None:
        """See `ReadModel.newest_named`."""
        named = self.names.get((owner, name))
        return None if named is None else self.jobs[named]

    def newest(self, before: JobId | None = None) -> Iterator[Job]:
        """See `ReadModel.newest`."""
        return map(self.active.__getitem__, self.active.descending(before))

    def members(self, job: JobId) -> Iterator[TaskRun]:
        """The task runs of a job, by index."""
        names = (run_id(job, index) for index in range(len(self.jobs[job].spec.tasks)))
        return (run for name in names if (run := self.runs.get(name)) is not None)

    def task(self, run: TaskRun) -> TaskSpec:
        """The task that a task run carries out."""
        return self.jobs[run.job].spec.tasks[run.index]

    def occupants(self, instance: InstanceId) -> tuple[TaskRun, ...]:
        """See `ReadModel.occupants`."""
        return tuple(map(self.runs.__getitem__, self.residents.get(instance, ())))

    def used(self, instance: InstanceId) -> Resources:
        """See `ReadModel.used`."""
        return total_demand(self, self.occupants(instance), self.instances[instance])

    def is_connected(self, instance: InstanceId) -> bool:
        """See `ReadModel.is_connected`."""
        return instance in self.sessions

    def can_stay(self, instance: InstanceId) -> bool:
        """Whether tasks that are on the instance may stay there."""
        known = self.instances.get(instance)
        return known is not None and known.state in LIVE and known.leaving_ms is None

    def can_place(self, instance: InstanceId) -> bool:
        """Whether tasks may be given to the instance, now or when it is ready."""
        return self.can_stay(instance) and not self.instances[instance].at_risk

    # -- figures ---------------------------------------------------------------------------------

    def record(self, job: JobId, now: Millis) -> JobRecord:
        """See `ReadModel.record`."""
        account = ledger.job_account(self, job, now)
        return JobRecord(self.jobs[job], tuple(self.members(job)), account)

    def billed(self, instance: InstanceId, now: Millis) -> InstanceRecord:
        """See `ReadModel.billed`."""
        account = ledger.instance_account(self, instance, now)
        return InstanceRecord(self.instances[instance], account)

    def cost(self, now: Millis) -> CostSums:
        """See `ReadModel.cost`."""
        sums = ledger.running_up(self, now)
        totals = self.totals
        return CostSums(
            charged=Exact(totals.charged + sums.charged),
            idle=Exact(totals.idle + sums.idle),
            alone=Exact(totals.alone + sums.alone),
        )

    def charged(self, now: Millis) -> Exact:
        """See `ReadModel.charged`."""
        return Exact(self.totals.charged + ledger.running_charge(self, now))

    def normalised(self, run: TaskRun) -> float | None:
        """See `ReadModel.normalised`."""
        return throughput.normalised(self, run)

    def expected_ppm(self, entry: Key) -> int:
        """How fast a task is expected to run beside others, see `learning.colocation.lookup`."""
        return lookup(self.throughput, entry)

    def reservation(self, run: TaskRun) -> Reservation:
        """What a task run's task is worth, and on which offering."""
        job = self.jobs[run.job]
        found = self.prices.of_job(job) if run.job in self.active else self.prices.of(job.spec)
        return found[run.index]

    def reservations_of(self, spec: JobSpec) -> tuple[Reservation, ...]:
        """What each task of a job is worth, be the job submitted or not."""
        return self.prices.of(spec)

    def standalone_rates(self, task: TaskSpec) -> Rates:
        """Standalone rates of a task, see `JobValuation.rates`."""
        return self.prices.rates(task)

    def outlooks(self, record: JobRecord, now: Millis) -> tuple[Outlook, Sequence[Outlook]]:
        """See `ReadModel.outlooks`."""
        return remaining.outlooks(self, record.job, record.runs, now)

    def reservation_price(self, run: TaskRun) -> int:
        """See `ReadModel.reservation_price`."""
        return self.reservation(run).price

    def reservation_prices(self, spec: JobSpec) -> tuple[int, ...]:
        """See `ReadModel.reservation_prices`."""
        return tuple(reservation.price for reservation in self.prices.of(spec))

    def learned_tables(self) -> LearnedTables:
        """See `ReadModel.learned_tables`."""
        known = self.learned
        return LearnedTables(
            standalone=known.standalone.rates,
            interference=[
                (workload, others, ppm) for (workload, others), ppm in known.throughput.observed
            ],
            evidence=known.evidence,
            delays={
                (kind.value, name): estimate
                for (kind, name), estimate in known.delays.known.items()
            },
        )

    def preview(self, spec: JobSpec, now: Millis) -> Snapshot:
        """See `ReadModel.preview`."""
        values = {each.name: getattr(self, each.name) for each in fields(ClusterModel)}
        scratch = _Scratch(**values)
        for job in self.active:
            scratch.view_cache.job_changed(job)
        for instance in self.live:
            scratch.view_cache.instance_changed(instance)
        return hypothetical(scratch, spec, now, self.settings)


@dataclass(frozen=True, slots=True)
class _Scratch(ClusterModel):
    """A model with views of its own, for one snapshot."""

    view_cache: ViewCache = field(default_factory=ViewCache)
