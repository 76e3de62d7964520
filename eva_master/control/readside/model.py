"""The cluster as of one commit, as `eva_master.ports.reading.ReadModel`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice

from eva_master.control.features.deadlines.queueing import behind_others
from eva_master.control.features.lending import payments
from eva_master.control.features.partitions import membership
from eva_master.control.measure import (
    cost_groups,
    dags,
    ledger,
    partition_sums,
    remaining,
    throughput,
)
from eva_master.control.measure.estimates import Contradicted
from eva_master.control.planning import quota_use
from eva_master.control.readside import shown_tasks
from eva_master.control.readside.learned import learned_tables, learned_times, watched_pools
from eva_master.control.readside.line_outlooks import LineOutlooks
from eva_master.control.readside.parts import (
    ReadersCompany,
    ReadersDags,
    ReadersFigures,
    ReadersFinished,
    ReadersGangs,
    ReadersTasks,
)
from eva_master.control.readside.persistent_map import PersistentMap
from eva_master.control.readside.shared_limits import shared_limits
from eva_master.control.readside.unforked import why_unforked
from eva_master.control.rounds.moment import Recent
from eva_master.control.settings import Settings
from eva_master.control.standing.membership import Statement
from eva_master.control.state.counters import Counters
from eva_master.control.state.derived.dags import Dag
from eva_master.control.state.derived.gang_places import GangParts
from eva_master.control.state.derived.task_counts import TaskCounts
from eva_master.control.state.parts.lending import Agreement
from eva_master.control.state.runs import Runs
from eva_master.control.supply.spot import expected_price
from eva_master.learning.knowledge import Knowledge
from eva_master.learning.market.spot_market import SpotMarket
from eva_master.learning.voices.lessons import Lessons
from eva_master.learning.voices.names import Voice, voice_of
from eva_master.learning.voices.resolution import Resolved
from eva_master.model.accounting.cost_sums import CostSums
from eva_master.model.accounting.months import MonthLevel
from eva_master.model.accounting.splits import CostSplit
from eva_master.model.accounting.totals import (
    NO_TOTALS,
    CostTotals,
    PartitionTotals,
    TenantTotals,
    Totals,
)
from eva_master.model.arithmetic.loop_time import WallClock
from eva_master.model.catalog import Catalog, Offering, Purchase
from eva_master.model.changes import InstanceAccount, JobAccount
from eva_master.model.events import CloudTrouble
from eva_master.model.fleet.keeping import KeepReason
from eva_master.model.fleet.listing import CatalogListing
from eva_master.model.fleet.partitions import Partitions
from eva_master.model.job import JobSpec, TaskSpec, different
from eva_master.model.planning.estimate import Estimates, Evidence
from eva_master.model.planning.plan import PolicyMemory
from eva_master.model.planning.reasons import Handed
from eva_master.model.planning.snapshot import StandaloneRates
from eva_master.model.planning.standing import LinePlace
from eva_master.model.records import Instance, Job, TaskRun
from eva_master.model.resources import total
from eva_master.model.tenants.quotas import TenantLimits
from eva_master.model.tenants.tenancy import LoanTerms
from eva_master.packing.shared_limits.queue import SharedQueue
from eva_master.packing.valuation.job_valuation import (
    JobReservations,
    JobValuation,
    Rates,
    Reservation,
)
from eva_master.ports.instances import Hosted, InstanceRecord
from eva_master.ports.learned import LearnedTime, WatchedPool
from eva_master.ports.previews import JobPreview
from eva_master.ports.reading import (
    SHOWN,
    DagOutlook,
    JobRecord,
    LearnedTables,
    LineOutlook,
    Outlook,
    TaskPage,
)
from eva_master.ports.shared_limits import SharedLimit
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR, Exact, InstanceId, JobId, Millis, RunId
from eva_wire.values.states import LIVE, TERMINAL_JOB, RunState

_JOBS_REMEMBERED = 16_384
"""Jobs whose reservations readers share at most."""
_NOTHING_KNOWN = StandaloneRates()
_AT_WORK = (RunState.STARTING, RunState.RUNNING)


class ReadersValuation:
    """A valuation that readers share while prices and measured rates stay the same.

    The first reader that asks makes it. Two that ask at once may both compute a result; the results
    are equal.
    """

    def __init__(self, catalog: Catalog, voices: Mapping[Voice, Lessons]) -> None:
        self._catalog = catalog
        self._rates = {voice: lessons.standalone.known for voice, lessons in voices.items()}
        self._valuations: dict[Voice, JobValuation] = {}
        self._reservations: dict[JobId, JobReservations] = {}

    def still_holds(self, catalog: Catalog, voices: Mapping[Voice, Lessons]) -> bool:
        """Whether prices and measured rates are the same as when it was made."""
        rates = self._rates
        return (
            catalog is self._catalog
            and voices.keys() == rates.keys()
            and all(lessons.standalone.known is rates[voice] for voice, lessons in voices.items())
        )

    def of(self, spec: JobSpec) -> tuple[Reservation, ...]:
        """The reservation of each task of a job."""
        return self._made(spec).of(spec)

    def rates(self, job: JobSpec, task: TaskSpec) -> Rates:
        """Standalone rates of a task of a job."""
        return self._made(job).rates(task)

    def _made(self, job: JobSpec) -> JobValuation:
        """The valuation of a job's voice."""
        voice = voice_of(job)
        valuation = self._valuations.get(voice)
        if valuation is None:
            first = next(iter(self._valuations.values()), None) or JobValuation(self._catalog)
            rates = self._rates.get(voice, _NOTHING_KNOWN)
            valuation = self._valuations[voice] = first.by(rates)
        return valuation

    def of_job(self, name: JobId, jobs: Mapping[JobId, Job]) -> JobReservations:
        """The reservations of one of the jobs, remembered."""
        reservations = self._reservations.get(name)
        if reservations is None:
            if len(self._reservations) >= _JOBS_REMEMBERED:
                self._reservations = {}
            spec = jobs[name].spec
            reservations = self._reservations[name] = JobReservations(self._made(spec), spec)
        return reservations


ActiveName = tuple[str, str, float, str]
"""A job's name, its owner (empty for all owners), its number and its id."""


@dataclass(frozen=True, slots=True)
class ClusterModel:
    """All data for readers; see `eva_master.ports.reading.ReadModel`.

    The model also implements `control.state.records.Records`, so that amounts are projected here by
    the functions that book them in the control loop.
    """

    at_ms: Millis
    settings: Settings
    jobs: PersistentMap[JobId, Job]
    touched: PersistentMap[RunId, TaskRun]
    """Task runs to which something has happened."""
    index: shown_tasks.Index
    counts: PersistentMap[JobId, TaskCounts]
    """Task counts of each job."""
    instances: PersistentMap[InstanceId, Instance]
    active: PersistentMap[JobId, Job]
    live: PersistentMap[InstanceId, Instance]
    job_accounts: PersistentMap[JobId, JobAccount]
    instance_accounts: PersistentMap[InstanceId, InstanceAccount]
    names: PersistentMap[tuple[str, str], JobId]
    """The newest known job of each owner and name."""
    active_names: PersistentMap[ActiveName, JobId]
    """Active jobs by name; those of all owners together, and those of each."""
    residents: PersistentMap[InstanceId, tuple[RunId, ...]]
    sessions: PersistentMap[InstanceId, int]
    totals: Totals
    agreements: Mapping[JobId, Agreement]
    """The terms in force between tenants."""
    counters: Counters
    catalog: Catalog
    listing: CatalogListing
    learned: Knowledge
    resolved: Resolved
    market: SpotMarket
    month_levels: Mapping[str, MonthLevel]
    trouble: CloudTrouble
    wall: WallClock
    memory: PolicyMemory | None
    memories: Mapping[str, PolicyMemory | None]
    prices: ReadersValuation
    pool_reasons: Mapping[str, str]
    queued: Mapping[JobId, tuple[LinePlace, ...]]
    stated: Mapping[str, Statement]
    """Pools and lines by partition, see `Membership`."""
    dag_by_job: PersistentMap[JobId, Dag]
    """DAGs of the jobs that are stages of one and have not ended."""
    handed: PersistentMap[JobId, Handed]
    """See `PlanningRecords.handed`."""
    recents: Mapping[str, Recent]
    """State that the rounds of each partition leave to the next one."""
    queue: SharedQueue | None
    """Queue for limits that partitions share, as of the last look."""
    kept: Mapping[InstanceId, KeepReason]
    """Why instances stay that are empty."""
    previews: Callable[[ClusterModel, JobSpec, Millis], JobPreview]
    """Follows the submission of a job."""
    _parts: dict[JobId, GangParts] = field(init=False, default_factory=dict, compare=False)
    """Answers about gangs, which stay so as long as the model."""
    _unbooked: dict[Millis, Sequence[ledger.Running]] = field(
        init=False, default_factory=dict, compare=False
    )

    # -- records ---------------------------------------------------------------------------------

    @property
    def runs(self) -> Runs:
        """See `ReadModel.runs`."""
        return Runs(self.jobs, self.touched, self.counts)

    @property
    def company(self) -> ReadersCompany:
        """See `Records.company`."""
        return ReadersCompany(self)

    @property
    def tasks(self) -> ReadersTasks:
        """See `Records.tasks`."""
        return ReadersTasks(self, self.counts)

    @property
    def finished_tasks(self) -> ReadersFinished:
        """See `Records.finished_tasks`."""
        return ReadersFinished(self.counts)

    @property
    def figures(self) -> ReadersFigures:
        """See `Records.figures`."""
        return ReadersFigures(self.learned, self.resolved)

    @property
    def gangs(self) -> ReadersGangs:
        """See `Records.gangs`."""
        return ReadersGangs(self, self._parts)

    @property
    def dags(self) -> ReadersDags:
        """See `Records.dags`."""
        return ReadersDags(self.dag_by_job)

    @property
    def rounds(self) -> int:
        """How many planning rounds there were."""
        return self.counters.rounds

    @property
    def connected(self) -> int:
        """How many workers have a session."""
        return len(self.sessions)

    @property
    def estimates(self) -> Estimates:
        """The source of run-time estimates."""
        return self.settings.estimates

    def placeable(self, job: JobId) -> int:
        """How many tasks of a job may be given a place now."""
        return self.tasks.of(job).placeable(self.jobs[job])

    def find(self, owner: str, reference: str) -> Job | None:
        """See `ReadModel.find`."""
        job: Job | None = self.jobs.get(JobId(reference))
        return self.newest_named(owner, reference) if job is None else job

    def newest_named(self, owner: str, name: str) -> Job | None:
        """See `ReadModel.newest_named`."""
        active = next(self.active_named(name, owner), None)
        if active is not None:
            return active
        named = self.names.get((owner, name))
        return None if named is None else self.jobs[named]

    def active_named(self, name: str, owner: str = "") -> Iterator[Job]:
        """See `ReadModel.active_named`."""
        for key in self.active_names.descending((name, owner, math.inf, "")):
            if key[0] != name or key[1] != owner:
                return
            yield self.jobs[self.active_names[key]]

    def newest(self, before: JobId | None = None) -> Iterator[Job]:
        """See `ReadModel.newest`."""
        return map(self.active.__getitem__, self.active.descending(before))

    def members(self, job: JobId) -> Iterator[TaskRun]:
        """The task runs of a job, by index."""
        return self.runs.of(self.jobs[job])

    def in_hand(self, job: JobId) -> tuple[TaskRun, ...]:
        """The task runs of a job that have an instance or a target."""
        return shown_tasks.in_hand(job, self.runs, self.index)

    def task(self, run: TaskRun) -> TaskSpec:
        """The task that a task run carries out."""
        return self.jobs[run.job].spec.tasks[run.index]

    def occupants(self, instance: InstanceId) -> tuple[TaskRun, ...]:
        """See `ReadModel.occupants`."""
        return tuple(self.touched.several(self.residents.get(instance, ())))

    def hosted(self, *instances: InstanceId) -> dict[InstanceId, Hosted]:
        """See `ReadModel.hosted`."""
        named = ((name, self.residents.get(name, ())) for name in instances)
        residents = dict(named if instances else self.residents.items())
        runs = iter(self.touched.several(chain.from_iterable(residents.values())))
        hosted = {}
        for name, ids in residents.items():
            family, here = self.instances[name].offering.type.family, tuple(islice(runs, len(ids)))
            needs, alone = [], 0
            for run in here:
                reservations = self.prices.of_job(run.job, self.jobs)
                need = reservations.spec.tasks[run.index].demand_on(family)
                assert need is not None, f"{run.id} cannot run on {family}"
                needs.append(need)
                if run.state in _AT_WORK:
                    alone += reservations[run.index].price
            hosted[name] = Hosted(here, total(needs), alone)
        return hosted

    def is_connected(self, instance: InstanceId) -> bool:
        """See `ReadModel.is_connected`."""
        return instance in self.sessions

    def can_stay(self, instance: InstanceId) -> bool:
        """Whether the tasks on the instance may stay there."""
        record = self.instances.get(instance)
        return record is not None and record.state in LIVE and record.leaving_ms is None

    def can_place(self, instance: InstanceId) -> bool:
        """Whether tasks may be given to the instance, now or when it is ready."""
        return self.can_stay(instance) and self.instances[instance].takes_tasks

    # -- figures ---------------------------------------------------------------------------------

    def record(self, job: JobId, now: Millis, page: TaskPage = SHOWN) -> JobRecord:
        """See `ReadModel.record`."""
        record, counts = self.jobs[job], self.counts[job]
        about = record, self.runs, self.index, counts
        whole = shown_tasks.suspended(*about)
        shown = tuple(shown_tasks.of_page(*about, page))
        telling: tuple[TaskRun, ...] = ()
        if record.state not in TERMINAL_JOB:
            own = sum(not run.extra for run in shown)
            everyone = page == SHOWN and own == record.spec.size
            telling = shown if everyone else tuple(shown_tasks.telling(*about))
        return JobRecord(
            record,
            shown,
            ledger.job_account(self, job, now),
            counts.states,
            in_hand=counts.in_hand,
            telling=telling,
            suspension=None if whole is None else whole.suspension,
            reasons=shown_tasks.reasons(record, counts),
            handed=self.handed.get(record.id),
        )

    def billed(self, instance: InstanceId, now: Millis) -> InstanceRecord:
        """See `ReadModel.billed`."""
        account = ledger.instance_account(self, instance, now)
        return InstanceRecord(self.instances[instance], account)

    def cost(self, now: Millis) -> CostSums:
        """See `ReadModel.cost`."""
        return ledger.cost(self, self.kept, now, self._running(now))

    def _running(self, now: Millis) -> Sequence[ledger.Running]:
        """Costs that are not booked yet, worked out once for all readers of one moment."""
        running = self._unbooked.get(now)
        if running is None:
            running = tuple(ledger.running(self, now))
            self._unbooked.clear()
            self._unbooked[now] = running
        return running

    def of_tenants(self, now: Millis) -> Mapping[str, TenantTotals]:
        """See `ReadModel.of_tenants`."""
        sums = dict(self.totals.tenants)
        for tenant, more in payments.running(self, self.agreements, now).items():
            sums[tenant] = sums.get(tenant, NO_TOTALS) + more
        running = ledger.running_of(self, now, lambda job: job.spec.tenant)
        none = JobAccount(JobId(""))
        return {
            tenant: replace(
                of,
                charged=Exact(of.charged + running.get(tenant, none).charged),
                alone=Exact(of.alone + running.get(tenant, none).alone),
            )
            for tenant, of in sums.items()
        }

    def tenant_limits(self, now: Millis) -> Mapping[str, TenantLimits]:
        """See `ReadModel.tenant_limits`."""
        return quota_use.limits(self, self.settings.tenancy, now)

    def costs(self, split: CostSplit, now: Millis) -> Mapping[str, CostTotals]:
        """See `ReadModel.costs`."""
        return cost_groups.costs(self, self.partitions, split, now, self._running(now))

    @property
    def partitions(self) -> Partitions:
        """See `ReadModel.partitions`."""
        return self.settings.partitions

    def partition_of(self, spec: JobSpec) -> str:
        """See `ReadModel.partition_of`."""
        return membership.chosen(self, self.partitions, spec, self.at_ms)

    def of_partitions(self, now: Millis) -> Mapping[str, PartitionTotals]:
        """See `ReadModel.of_partitions`."""
        booked = self.totals.partitions
        return partition_sums.of_partitions(self, booked, self.partitions, now)

    def shared_limits(self, now: Millis) -> Sequence[SharedLimit]:
        """See `ReadModel.shared_limits`."""

        def gpus(tenant: str) -> tuple[int, int]:
            limits = self.tenant_limits(now)[tenant]
            return sum(used for _, used in limits.use), sum(most for _, most in limits.quota_now)

        return shared_limits(self, self.partitions, self.settings.limits, self.queue, gpus)

    def charged(self, now: Millis) -> Exact:
        """See `ReadModel.charged`."""
        return Exact(self.totals.charged + ledger.running_charge(self, now))

    def normalised(self, run: TaskRun) -> float | None:
        """See `ReadModel.normalised`."""
        return throughput.normalised(self, run)

    def reservation(self, run: TaskRun) -> Reservation:
        """The reservation price of a task run's task, and the offering with that price."""
        return self.prices.of_job(run.job, self.jobs)[run.index]

    def outlooks(self, record: JobRecord, now: Millis) -> tuple[Outlook, Sequence[Outlook]]:
        """See `ReadModel.outlooks`."""
        return remaining.outlooks(self, record.job, record.runs, record.telling, now)

    def contradicted(self, job: Job) -> Contradicted | None:
        """See `ReadModel.contradicted`."""
        return remaining.contradicted(self, job)

    def evidence(self, job: Job) -> Evidence | None:
        """See `ReadModel.evidence`."""
        return remaining.evidence(self, job)

    def terms_of(self, job: JobId) -> LoanTerms | None:
        """See `ReadModel.terms_of`."""
        agreed = self.agreements.get(job)
        return None if agreed is None else agreed.terms

    def dag_outlook(self, job: Job) -> DagOutlook | None:
        """See `ReadModel.dag_outlook`."""
        return dags.outlook(self, job, lambda name: self.counts[name].left)

    def reservation_prices(self, spec: JobSpec) -> tuple[int, ...]:
        """See `ReadModel.reservation_prices`."""
        return tuple(reservation.price for reservation in self.prices.of(spec))

    def spot_life_ms(self, job: Job) -> int | None:
        """See `ReadModel.spot_life_ms`."""
        families = {family for task in different(job.spec.tasks) for family, _ in task.demand}
        rates = [
            self.market.mean_rate_ppm(offering)
            for offering in self.catalog
            if offering.purchase is Purchase.SPOT and offering.type.family in families
        ]
        mean = sum(rates) // len(rates) if rates else 0
        return MILLION * MILLIS_PER_HOUR // mean if mean else None

    def watched_pools(self, now: Millis) -> Sequence[WatchedPool]:
        """See `ReadModel.watched_pools`."""
        return watched_pools(self.market.pools, self.live.values(), now)

    def learned_tables(self, voice: str | None) -> LearnedTables:
        """See `ReadModel.learned_tables`."""
        return learned_tables(self.learned, self.resolved, voice)

    def learned_times(self, owner: str) -> list[LearnedTime]:
        """See `ReadModel.learned_times`."""
        return learned_times(self.learned.run_times.owners, owner)

    def ahead(self, job: JobId, places: Iterable[LinePlace], now: Millis) -> list[LineOutlook]:
        """See `ReadModel.ahead`."""
        outlooks = LineOutlooks(self, self.partitions.home(self.jobs[job].partition), now)
        return [outlooks.of(self.jobs[job], place) for place in places]

    def unforked(self, job: JobId, now: Millis) -> str:
        """See `ReadModel.unforked`."""

        def waits(other: Job) -> bool:
            states = self.counts[other.id].states
            return states.get(RunState.WAITING, 0) > 0

        return why_unforked(self, self.partitions, self.jobs[job], waits, now)

    def expected_price(self, offering: Offering) -> int:
        """See `ReadModel.expected_price`."""
        return expected_price(self, offering, self.settings, self.at_ms)

    def behind_others(self, spec: JobSpec, job: JobId | None, now: Millis) -> str:
        """See `ReadModel.behind_others`."""
        record = None if job is None else self.jobs.get(job)
        spec = spec if record is None else record.spec
        return behind_others(self, self.settings, spec, job, now)

    def preview(self, spec: JobSpec, now: Millis) -> JobPreview:
        """See `ReadModel.preview`."""
        return self.previews(self, spec, now)
