"""The master's state: immutable records in indexed collections, and what of it is unwritten."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import partial

from eva_master.control.standing.membership import Membership
from eva_master.control.state.active_load import ActiveLoad
from eva_master.control.state.counters import Counters
from eva_master.control.state.dependencies import Dependencies
from eva_master.control.state.derived.active_jobs import ActiveJobs
from eva_master.control.state.derived.active_names import ActiveNames
from eva_master.control.state.derived.company import Company
from eva_master.control.state.derived.dags import Dags
from eva_master.control.state.derived.figures import Figures
from eva_master.control.state.derived.gang_places import GangPlaces
from eva_master.control.state.derived.unplaced import Unplaced
from eva_master.control.state.derived.worth import Valuations
from eva_master.control.state.finished import FinishedTasks
from eva_master.control.state.job_tasks import JobTasks, TasksOfJobs
from eva_master.control.state.parts.months import MonthLevels
from eva_master.control.state.parts.over import Over
from eva_master.control.state.parts.policy_memories import PolicyMemories, memories_of
from eva_master.control.state.parts.results import Removals
from eva_master.control.state.parts.sessions import OpenSessions
from eva_master.control.state.parts.tenant_tally import Stretch
from eva_master.control.state.places import Places
from eva_master.control.state.records import total_demand
from eva_master.control.state.restoring import knowledge, launch, submission
from eva_master.control.state.runs import Runs
from eva_master.control.state.suspended import Suspended
from eva_master.control.state.tally import Tally
from eva_master.control.state.unwritten import Unpublished, Unwritten
from eva_master.control.state.view_cache import ViewCache
from eva_master.learning.boots import Boots
from eva_master.learning.knowledge import Knowledge
from eva_master.learning.market.spot_market import SpotMarket
from eva_master.learning.memory_sizes import MemorySizes
from eva_master.learning.voices.lessons import Lessons
from eva_master.learning.voices.names import Voice
from eva_master.model.accounting.totals import Totals
from eva_master.model.arithmetic.loop_time import AS_LOOP
from eva_master.model.catalog import Catalog, Offering, quoted_at
from eva_master.model.changes import Changes, InstanceAccount, JobAccount, Round
from eva_master.model.events import CloudTrouble
from eva_master.model.feed import FeedEvent
from eva_master.model.fleet.listing import CatalogListing
from eva_master.model.job import TaskSpec
from eva_master.model.planning.estimate import Estimates
from eva_master.model.planning.reasons import Handed
from eva_master.model.progress import Progress
from eva_master.model.records import Instance, Job, TaskRun
from eva_master.model.resources import Resources
from eva_master.model.values import replace
from eva_master.packing.valuation.job_valuation import JobValuation, Reservation
from eva_wire.values.ids import InstanceId, JobId, Millis, OfferingId, Price, RunId
from eva_wire.values.states import LIVE, TERMINAL_JOB, TERMINAL_RUN, InstanceState

_Owned = tuple[str, str]
_Kept = SpotMarket | Boots | MemorySizes | Removals | MonthLevels | CatalogListing


class State:
    """Everything the control loop knows.

    Records are immutable and replaced through the ``put_...`` methods, which keep the indexes and
    note the changes for the journal. State outside the journal (sessions) is rebuilt from the world
    after a restart.

    Records of ended jobs and instances are forgotten after a while (`forget`); the journal keeps
    them, and `totals` count them.

    Attributes:
        jobs: By id, in order of submission. runs: By id; untouched ones have no record.
        tasks: Counts of each job's tasks. sessions: Each instance's open session.
        instances: By id; terminated ones too, until they are forgotten.
        job_accounts: Debts of jobs when last booked. instance_accounts: Costs of instances, too.
        catalog: Offerings, with the availability that the cloud reported.
        memories: Memories of policies, by partition; the default partition has the empty name.
        market: The spot market. boots: Failed boots. valuation: Returns a voice's valuation of
            jobs.
        sizes: Memory of instance types. trouble, wall, journal_ms: State of the cloud, wall clock,
            when the journal was last written before this master; not journalled.
        dependencies: Jobs that wait for others. dags: Stages of DAGs. suspended: Suspended jobs.
            finished_tasks: Run times in arrays. estimates: Source of run-time estimates. company:
            Groups of task runs on instances, and their rates.
        groups: See `Records`, as for ``jobs_on``, ``runs_on``, ``finished`` and others.
        membership: Instances that stand in pools or drain.
        view_cache: The parts of snapshots, with notes of those that may be out of date.
        removals: Removals of stored files that are not carried out yet.
        feed: Events that are written with the next commit. month_levels: Limits of a month that
            are used up. listing: The cloud's last answer about what it sells.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.jobs: dict[JobId, Job] = {}
        self._touched: dict[RunId, TaskRun] = {}
        self.finished_tasks = FinishedTasks()
        self.tasks = TasksOfJobs(self.jobs, lambda job: self.finished_tasks.first(job, self.runs))
        self.runs = Runs(self.jobs, self._touched, self.tasks)
        self.instances: dict[InstanceId, Instance] = {}
        self.job_accounts: dict[JobId, JobAccount] = {}
        self.instance_accounts: dict[InstanceId, InstanceAccount] = {}
        self.sessions = OpenSessions(self._publish_instance)
        self.catalog = catalog
        self.memories = PolicyMemories(
            lambda name, value: self._unwritten.values.update({name: value})
        )
        self.figures = Figures()
        self.market, self.removals = SpotMarket(), Removals()
        self.month_levels, self.listing = MonthLevels(), CatalogListing()
        self.boots = Boots()
        self.sizes = MemorySizes.of(catalog)
        self.counters = Counters()
        self.with_deadlines: dict[JobId, None] = {}
        self.active = ActiveJobs(self.with_deadlines)
        self.live: dict[InstanceId, None] = {}  # those that are not gone, in order of launch
        self.places = Places(self._touched)
        self.unplaced = Unplaced()
        self.prices = Valuations(lambda: JobValuation(self.catalog), self.figures.rates)
        self.commands, self.names = dict[_Owned, JobId](), ActiveNames()
        self.trouble, self.wall, self.journal_ms = CloudTrouble(None), AS_LOOP, Millis(0)
        self.estimates = Estimates.POSTERIOR
        self.view_cache, self.tally = ViewCache(), Tally()
        self.handed: dict[JobId, Handed] = {}
        self.active_load = ActiveLoad()
        self.dependencies = Dependencies(self._reprioritised, self.handed)
        self.dags = Dags(self._job_changed)
        self.company = Company(self._touched, self.places.occupants, self.instances, self.task)
        self.gangs = GangPlaces(self._touched, self.instances, self.company, self.task)
        self.suspended, self.membership = Suspended(), Membership()
        self.over, self._unwritten = Over(), Unwritten()
        self.feed: list[FeedEvent] = []
        self._unpublished: Unpublished | None = None

    @classmethod
    def restored(cls, catalog: Catalog, written: Changes) -> State:
        """The state as the journal has it: `Journal.load`'s answer, be what is over in it or not.

        Remembered unavailability is applied to the catalog, which has what is on sale now.
        """
        state = cls(catalog)
        for job in sorted(written.jobs, key=submission):
            state.put_job(job)
        for run in written.runs:
            state.put_run(run)
        for instance in sorted(written.instances, key=launch):
            state.put_instance(instance)
        for account in written.job_accounts:
            state.put_job_account(account)
        for charged in written.instance_accounts:
            state.put_instance_account(charged)
        state.over.sort()
        state._restore_values(written)
        state._unwritten = Unwritten()
        return state

    def _restore_values(self, written: Changes) -> None:
        values = written.documents()
        if isinstance(counts := values.get("counters"), dict):
            self.counters = Counters(**{k: v for k, v in counts.items() if isinstance(v, int)})
        if isinstance(totals := values.get("totals"), dict):
            self.tally.restore(totals, values)
        self.memories.update(memories_of(values))
        if isinstance(learned := values.get("learned"), dict):
            self.set_learned(knowledge(learned, self.dags))
            self.figures.resolve()
            self.figures.written = self.learned
        self.market = SpotMarket.from_json(values)
        self.removals = Removals.from_json(values.get("removals"))
        self.month_levels = MonthLevels.from_json(values.get("month_levels"))
        self.listing = CatalogListing.from_json(values)
        if isinstance(boots := values.get("boots"), dict):
            self.boots = Boots.from_json(boots)
        self.sizes = self.sizes.restored(values.get("memory_sizes"), values.get("disk_sizes"))
        if isinstance(unavailable := values.get("unavailable"), dict):
            for offering, entry in unavailable.items():
                until, why = entry if isinstance(entry, list) else (entry, "")
                self.set_unavailable([OfferingId(offering)], Millis(int(str(until))), str(why))

    # -- records ---------------------------------------------------------------------------------

    def put_job(self, job: Job) -> None:
        """Add or replace a job."""
        old = self.jobs.get(job.id)
        self.jobs[job.id] = job
        self._job_changed(job.id)
        self._unwritten.jobs[job.id] = None
        if old is None:
            self.tasks[job.id] = JobTasks(job)
        else:
            self.tasks[job.id].job_changed(old, job)
        self.tally.job(old, job, self.tasks[job.id].untouched)
        self.active_load.follow(old, job)
        self.dependencies.follow(job, self.jobs)
        self.dags.follow(job)
        self.suspended.follow(job, self.tasks[job.id])
        self._note_unplaced(job)
        if old is None and job.command:
            self.commands[job.spec.owner, job.command] = job.id
        self.names.follow(job)
        if job.state in TERMINAL_JOB:
            if old is None or old.state not in TERMINAL_JOB:
                self.over.add_job(job)
            self.finished_tasks.forget(job.id)
            self.prices.forget(job)
        self.active.follow(job)

    def _job_changed(self, job: JobId) -> None:
        self.view_cache.job_changed(job)
        if self._unpublished is not None:
            self._unpublished.jobs[job] = None

    def _reprioritised(self, job: JobId) -> None:
        self._job_changed(job)
        self._note_unplaced(self.jobs[job])

    def put_run(self, run: TaskRun) -> None:
        """Add or replace a task run."""
        self.replace_run(self.runs.get(run.id), run)

    def replace_run(self, old: TaskRun | None, run: TaskRun) -> None:
        """Replace the record of a task run, of which `old` is the present one."""
        job = self.jobs[run.job]
        self._touched[run.id] = run
        self.tasks[run.job].follow(old, run)
        self.view_cache.job_changed(run.job)
        self._unwritten.runs[run.id] = None
        self.tally.run(old, run)
        if run.job in self.active and (run.took_ms or run.state in TERMINAL_RUN):
            self.finished_tasks.follow(old, run, job)
            self.dags.note_finished(job)
        if self._unpublished is not None:
            self._unpublished.runs[run.id] = None
        task = job.spec.tasks[run.index]
        self.company.follow(run, task)
        place = None if old is None else old.instance
        if place != run.instance:
            self.company.moved(place, run, task)
            self.membership.moved(place, run.instance, self.view_cache.instance_changed)
            if self._unpublished is not None:
                self._unpublished.moved(place, run.instance)
        self.places.follow(old, run)
        self.gangs.follow(place, run, gang=job.spec.has_mates)
        if (job.id in self.unplaced) is not self._waits(job):
            self._note_unplaced(job)
        self.suspended.follow_run(old, run, job, self.tasks[run.job])

    def _waits(self, job: Job) -> bool:
        """Whether a plan should give a task a place; not while no plan is about its job."""
        placeable = self.tasks[job.id].placeable(job) > 0
        return placeable and job.id not in self.dependencies and job.id not in self.suspended

    def _note_unplaced(self, job: Job) -> None:
        priority, waits = self.dependencies.priority(job), self._waits(job)
        self.unplaced.follow(job, self.tasks.kinds, priority=priority, waits=waits)

    def explain(self, run: TaskRun, reason: str) -> None:
        """Note why a task run waits; without a record it waits for what those wait like it."""
        job = self.jobs[run.job]
        if job.is_gang or run.id in self._touched:
            self.put_run(replace(run, waiting_for=reason))
        elif self.tasks[job.id].explain(job.spec.tasks[run.index], reason):
            self._job_changed(job.id)
            self._unwritten.explained[job.id] = None

    def put_progress(self, run: TaskRun, progress: Progress) -> None:
        """Replace the progress of a task run; that alone is neither journalled nor a new view."""
        if progress != run.progress or progress.at_ms != run.progress.at_ms:
            after = self._touched[run.id] = replace(run, progress=progress)
            if progress.rate != run.progress.rate:
                self.company.follow(after, self.task(run))
            if self._unpublished is not None:
                self._unpublished.runs[run.id] = None

    def put_instance(self, instance: Instance) -> None:
        """Add or replace an instance."""
        old = self.instances.get(instance.id)
        self.instances[instance.id] = instance
        self.membership.follow(instance)
        self.view_cache.instance_changed(instance.id)
        self._unwritten.instances[instance.id] = None
        self._publish_instance(instance.id)
        if instance.state is InstanceState.GONE:
            if old is None or old.state is not InstanceState.GONE:
                self.over.add_instance(instance.id, instance.since_ms)
            self.live.pop(instance.id, None)
        else:
            self.live[instance.id] = None

    def _publish_instance(self, instance: InstanceId) -> None:
        if self._unpublished is not None:
            self._unpublished.instances[instance] = None

    def put_job_account(self, account: JobAccount, stretch: Stretch | None = None) -> None:
        """Replace what a job owes; `stretch`: see `Tally.job_account`."""
        before = self.job_accounts.get(account.job)
        self.tally.job_account(self.jobs.get(account.job), before, account, stretch)
        self.job_accounts[account.job] = account
        if self._unpublished is not None:
            self._unpublished.jobs[account.job] = None
        self._unwritten.job_accounts[account.job] = None

    def put_instance_account(self, account: InstanceAccount) -> None:
        """Replace what an instance cost."""
        before = self.instance_accounts.get(account.instance)
        self.tally.instance_account(self.instances[account.instance], before, account)
        self.instance_accounts[account.instance] = account
        self._publish_instance(account.instance)
        self._unwritten.instance_accounts[account.instance] = None

    def put_round(self, round_: Round) -> None:
        """Add the record of a planning round."""
        self._unwritten.rounds.append(round_)

    def count(self, **increments: int) -> Counters:
        """Increase counters by name and return them."""
        now = self.counters
        changed = {name: getattr(now, name) + more for name, more in increments.items()}
        self.counters = replace(now, **changed)
        self._unwritten.values["counters"] = partial(asdict, self.counters)
        return self.counters

    @property
    def learned(self) -> Knowledge:
        """Lessons about workloads and types."""
        return self.figures.learned

    def set_learned(self, learned: Knowledge) -> None:
        """Keep what was learned; written with the next round."""
        for voice in self.figures.learn(learned):
            self.prices.rates_changed(voice)

    def teach(self, voice: Voice, lessons: Lessons) -> None:
        """Keep what the jobs of one voice have taught; written with the next round."""
        if self.figures.teach(voice, lessons):
            self.prices.rates_changed(voice)

    def write_learned(self) -> None:
        """Have what was learned since the last time written with the next commit, within bounds."""
        if self.learned is not self.figures.written:
            self.set_learned(self.learned.bounded())
            self.figures.written = self.learned
            self._unwritten.values["learned"] = self.learned.to_json

    def remember(self, value: _Kept) -> None:
        """Replace a value that the journal keeps as documents.

        Documents that have changed are written with the next commit, and encoded only then.
        """
        old: _Kept
        match value:
            case SpotMarket():
                old, self.market = self.market, value
            case Boots():
                old, self.boots = self.boots, value
            case MemorySizes():  # `control.measure.memory.fit` has them apply.
                old, self.sizes = self.sizes, value
            case Removals():
                old, self.removals = self.removals, value
            case MonthLevels():
                old, self.month_levels = self.month_levels, value
            case CatalogListing():
                old, self.listing = self.listing, value
        written = old.documents
        changed = {name: new for name, new in value.documents.items() if new != written[name]}
        self._unwritten.values.update(changed)

    def set_unavailable(
        self, offerings: Iterable[OfferingId], until: Millis | None, why: str
    ) -> None:
        """Have offerings not launched before a time, `None` for now; `why`: for users."""
        refused = set(offerings)
        self.catalog = tuple(
            replace(offering, unavailable_until=until, why_unavailable=why)
            if offering.id in refused
            else offering
            for offering in self.catalog
        )
        self._unwritten.values["unavailable"] = {
            offering.id: [offering.unavailable_until, offering.why_unavailable]
            for offering in self.catalog
            if offering.unavailable_until is not None
        }

    def set_prices(self, prices: Mapping[OfferingId, Price]) -> None:
        """Change the prices of instances from now on, beside what is attached to them."""
        self.set_catalog(
            tuple(
                offering
                if (price := prices.get(offering.id)) is None
                else quoted_at(offering, price)
                for offering in self.catalog
            )
        )

    def set_catalog(self, catalog: Catalog) -> None:
        """Change what offerings are from now on."""
        self.catalog = catalog
        self.prices.prices_changed()
        self.view_cache.rates_changed()

    # -- look-ups --------------------------------------------------------------------------------

    def members(self, job: JobId) -> Iterator[TaskRun]:
        """The task runs of a job, by index."""
        return self.runs.of(self.jobs[job])

    def in_hand(self, job: JobId) -> tuple[TaskRun, ...]:
        """Task runs of a job that have an instance or a target."""
        return tuple(map(self._touched.__getitem__, self.tasks[job].in_hand))

    def task(self, run: TaskRun) -> TaskSpec:
        """The task of a task run."""
        return self.jobs[run.job].spec.tasks[run.index]

    def occupants(self, instance: InstanceId) -> tuple[TaskRun, ...]:
        """The task runs that take room on an instance."""
        return tuple(map(self._touched.__getitem__, self.places.occupants.get(instance, ())))

    def demand(self, runs: Iterable[TaskRun], on: Instance | Offering) -> Resources:
        """The total demand of task runs on an instance, or on an offering of its family."""
        return total_demand(self, runs, on)

    def reservation(self, run: TaskRun) -> Reservation:
        """The reservation price of a task run's task, and the offering with that price."""
        return self.prices.reservation(self.jobs[run.job], run.index)

    def can_place(self, instance: InstanceId) -> bool:
        """Whether tasks may be given to the instance, now or when it is ready."""
        return self.can_stay(instance) and self.instances[instance].takes_tasks

    def can_stay(self, instance: InstanceId) -> bool:
        """Whether the tasks on the instance may stay there."""
        record = self.instances.get(instance)
        return record is not None and record.state in LIVE and record.leaving_ms is None

    @property
    def totals(self) -> Totals:
        """Sums over everything that ever was, what was forgotten included."""
        return replace(self.tally.totals(), suspended=self.suspended.by_tenant)

    # -- forgetting ------------------------------------------------------------------------------

    def forget(self, until: Millis, limit: int) -> None:
        """Let go of `limit` jobs and instances at most that were over by then; totals stay as is.

        If too much is over, the oldest go whatever the time. Only what is written may be forgotten,
        since `take_changes` looks the records up.
        """
        for _ in range(limit):
            job, instance = self.over.pop(until)
            if job is not None:
                self._forget_job(job)
            elif instance is None:
                return
            elif instance not in self.live:  # An owned node may have come back.
                self._forget_instance(instance)

    def _forget_job(self, name: JobId) -> None:
        job = self.jobs.pop(name)
        runs = self.tasks.pop(name).touched
        for run in runs:
            del self._touched[run]
        self.job_accounts.pop(name, None)
        self.commands.pop((job.spec.owner, job.command), None)
        if self._unpublished is not None:
            self._unpublished.jobs[name] = None
            self._unpublished.runs.update(runs)

    def _forget_instance(self, name: InstanceId) -> None:
        self.instances.pop(name, None)
        self.instance_accounts.pop(name, None)
        self._publish_instance(name)

    # -- publishing ------------------------------------------------------------------------------

    def begin_publishing(self) -> None:
        """Keep from now on what `take_unpublished` hands out; at first that is everything."""
        self._unpublished = Unpublished(
            dict.fromkeys(self.jobs), dict.fromkeys(self._touched), dict.fromkeys(self.instances)
        )

    def take_unpublished(self) -> Unpublished:
        """Hand over the names of what changed since the last time, or is forgotten."""
        assert self._unpublished is not None, "nobody has begun to publish"
        taken, self._unpublished = self._unpublished, Unpublished()
        return taken

    # -- journal ---------------------------------------------------------------------------------

    def take_changes(self) -> Changes:
        """Hand over what has not been written yet; it counts as written from now on."""
        if not self._unwritten:
            return Changes()
        self.tally.write(self._unwritten.values)
        taken, self._unwritten = self._unwritten, Unwritten()
        feed, self.feed = self.feed, []
        return Changes(
            jobs=tuple(map(self.jobs.__getitem__, taken.jobs)),
            runs=tuple(map(self._touched.__getitem__, taken.runs)),
            instances=tuple(map(self.instances.__getitem__, taken.instances)),
            job_accounts=tuple(map(self.job_accounts.__getitem__, taken.job_accounts)),
            instance_accounts=tuple(
                map(self.instance_accounts.__getitem__, taken.instance_accounts)
            ),
            rounds=tuple(taken.rounds),
            values=taken.values,
            explained=tuple(taken.explained),
            feed=tuple(feed),
        )
