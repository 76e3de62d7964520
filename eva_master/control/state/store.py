"""The master's state: immutable records in indexed collections, and what of it is unwritten."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
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
from eva_master.control.state.parts.over import Over
from eva_master.control.state.parts.policy_memories import document_name, document_of, memories_of
from eva_master.control.state.records import total_demand
from eva_master.control.state.restoring import knowledge, launch, submission
from eva_master.control.state.runs import Runs, coming_to, reindex
from eva_master.control.state.suspended import Suspended
from eva_master.control.state.tally import Tally
from eva_master.control.state.unwritten import Unpublished, Unwritten
from eva_master.control.state.view_cache import ViewCache
from eva_master.learning.boots import Boots
from eva_master.learning.knowledge import Knowledge
from eva_master.learning.market.spot_market import SpotMarket
from eva_master.learning.memory_sizes import MemorySizes
from eva_master.learning.voices.names import voice_of
from eva_master.learning.voices.resolution import Resolved
from eva_master.model.accounting.totals import Totals
from eva_master.model.arithmetic.loop_time import AS_LOOP
from eva_master.model.catalog import Catalog, Offering
from eva_master.model.changes import Changes, InstanceAccount, JobAccount, Round
from eva_master.model.events import CloudTrouble
from eva_master.model.ids import InstanceId, JobId, Millis, OfferingId, Price, RunId
from eva_master.model.job import JobSpec, TaskSpec
from eva_master.model.planning.estimate import Estimates
from eva_master.model.planning.plan import PolicyMemory
from eva_master.model.records import Instance, Job, Progress, TaskRun
from eva_master.model.resources import Resources
from eva_master.model.states import LIVE, TERMINAL_JOB, TERMINAL_RUN, InstanceState, RunState
from eva_master.model.values import replace
from eva_master.packing.valuation.job_valuation import JobValuation, Rates, Reservation

_Owned = tuple[str, str]


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
        sizes: Memory of instance types. trouble, wall: State of the cloud, wall clock; not
            journalled.
        dependencies: Jobs that wait for others. dags: Stages of DAGs. suspended: Suspended jobs.
            finished_tasks: Run times in arrays. estimates: Source of run-time estimates. company:
            Groups of task runs on instances, and their rates.
        groups: See `Records`, as for ``jobs_on``, ``runs_on``, ``finished`` and others.
        membership: Instances that stand in pools or drain. lending: Terms in force.
        view_cache: The parts of snapshots, with notes of those that may be out of date.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.jobs: dict[JobId, Job] = {}
        self._touched: dict[RunId, TaskRun] = {}
        self.tasks = TasksOfJobs()
        self.succeeded, self.failed = self.tasks.succeeded, self.tasks.failed
        self.runs = Runs(self.jobs, self._touched, self.tasks)
        self.instances: dict[InstanceId, Instance] = {}
        self.job_accounts: dict[JobId, JobAccount] = {}
        self.instance_accounts: dict[InstanceId, InstanceAccount] = {}
        self.sessions: dict[InstanceId, int] = {}
        self.catalog = catalog
        self.memories: dict[str, PolicyMemory | None] = {}
        self._figures = figures = Figures()
        self.expected_ppm, self.observed_ppm = figures.expected_ppm, figures.observed_ppm
        self._learned_written = self.learned
        self.market = SpotMarket()
        self.boots = Boots()
        self.sizes = MemorySizes.of(catalog)
        self.counters = Counters()
        self.active = ActiveJobs()
        self.with_deadlines = self.active.with_deadlines
        self.live: dict[InstanceId, None] = {}  # those that are not gone, in order of launch
        self._occupants: defaultdict[InstanceId, dict[RunId, None]] = defaultdict(dict)
        self._coming: defaultdict[InstanceId, dict[RunId, None]] = defaultdict(dict)
        self._moving: dict[RunId, None] = {}
        self.unplaced = Unplaced()
        self._worth = Valuations(lambda: JobValuation(self.catalog), figures.rates)
        self.valuation, self.reservations_of = self._worth.valuation, self._worth.of
        self._commands, self.names = dict[_Owned, JobId](), ActiveNames()
        self.trouble, self.wall = CloudTrouble(None), AS_LOOP
        self.estimates = Estimates.POSTERIOR
        self.view_cache, self._tally = ViewCache(), Tally()
        self.partition_tally, self.lending = self._tally.partitions, self._tally.lending
        self.count_kept = self._tally.count_kept
        self.active_load, self.dependencies = ActiveLoad(), Dependencies(self._reprioritised)
        self.handed, self.dags = self.dependencies.handed, Dags(self._job_changed)
        self.company = Company(self._touched, self._occupants, self.instances, self.task)
        self.groups, self.jobs_on = self.company.groups, self.company.jobs_on
        self.runs_on, self.has_extras = self.company.runs_on, self.company.has_extras
        self.pace, self.taken = self.company.ppm, self.company.taken
        self._gangs = GangPlaces(self._touched, self.instances, self.company, self.task)
        self.gang_parts, self.dag = self._gangs.parts, self.dags.of
        self.finished_tasks = done = FinishedTasks()
        self.finished, self.telling, self.pilots_left = done.of, done.telling, done.pilots_left
        self.suspended, self.membership = Suspended(), Membership()
        self._over, self._unwritten = Over(), Unwritten()
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
        state._over.sort()
        state._restore_values(written)
        state._unwritten = Unwritten()
        return state

    def _restore_values(self, written: Changes) -> None:
        values = written.documents()
        if isinstance(counts := values.get("counters"), dict):
            self.counters = Counters(**{k: v for k, v in counts.items() if isinstance(v, int)})
        if isinstance(totals := values.get("totals"), dict):
            self._tally.restore(totals, values)
        self.memories = memories_of(values)
        if isinstance(learned := values.get("learned"), dict):
            self.set_learned(knowledge(learned, self.dags))
            self.resolve()
            self._learned_written = self.learned
        self.market = SpotMarket.from_json(values)
        if isinstance(boots := values.get("boots"), dict):
            self.boots = Boots.from_json(boots)
        self.sizes = self.sizes.restored(values.get("memory_sizes"))
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
        self._tally.job(old, job, self.tasks[job.id].untouched(job))
        self.active_load.follow(old, job)
        self.dependencies.follow(job, self.jobs)
        self.dags.follow(job)
        self.suspended.follow(job, self.tasks[job.id])
        self._note_unplaced(job)
        if old is None:
            self._commands[job.spec.owner, job.command] = job.id
        self.names.follow(job)
        if job.state in TERMINAL_JOB:
            if old is None or old.state not in TERMINAL_JOB:
                self._over.add_job(job)
            self.finished_tasks.forget(job.id)
            self._worth.forget(job)
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
        job = self.jobs[run.job]
        old = self.runs.get(run.id)
        self._touched[run.id] = run
        self.tasks[run.job].follow(old, run)
        self.view_cache.job_changed(run.job)
        self._unwritten.runs[run.id] = None
        self._tally.run(old, run)
        if run.job in self.active and (run.took_ms or run.state in TERMINAL_RUN):
            self.finished_tasks.follow(old, run, self.jobs[run.job])
            self.dags.note_finished(job)
        if self._unpublished is not None:
            self._unpublished.runs[run.id] = None
        task = job.spec.tasks[run.index]
        self.company.follow(run, task)
        place, came = (None, None) if old is None else (old.instance, coming_to(old))
        if place != run.instance:
            self.company.moved(place, run, task)
            reindex(self._occupants, run.id, place, run.instance)
            self.membership.moved(place, run.instance, self.view_cache.instance_changed)
            if self._unpublished is not None:
                self._unpublished.moved(place, run.instance)
        self._gangs.follow(place, run, gang=job.is_gang)
        if came != (coming := coming_to(run)):
            reindex(self._coming, run.id, came, coming)
        self._note_unplaced(job)
        self.suspended.follow_run(old, run, job, self.tasks[run.job])
        if run.state is RunState.RUNNING and run.target not in (None, run.instance):
            self._moving[run.id] = None
        else:
            self._moving.pop(run.id, None)

    def _note_unplaced(self, job: Job) -> None:
        """Follow whether a plan should give a task a place; not while no plan is about its job."""
        waits = self.tasks[job.id].placeable(job) > 0
        waits = waits and job.id not in self.dependencies and job.id not in self.suspended
        priority = self.dependencies.priority(job)
        self.unplaced.follow(job, self.kinds, priority=priority, waits=waits)

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
        if self._unpublished is not None:
            self._unpublished.instances[instance.id] = None
        if instance.state is InstanceState.GONE:
            if old is None or old.state is not InstanceState.GONE:
                self._over.add_instance(instance.id, Millis(instance.history[-1][1]))
            self.live.pop(instance.id, None)
        else:
            self.live[instance.id] = None

    def connect(self, instance: InstanceId, session: int) -> None:
        """Note that a worker has opened a session; the last one that it had is over."""
        self.sessions[instance] = session
        if self._unpublished is not None:
            self._unpublished.instances[instance] = None

    def disconnect(self, instance: InstanceId) -> None:
        """Note that a worker's session has ended; no error if it had none."""
        self.sessions.pop(instance, None)
        if self._unpublished is not None:
            self._unpublished.instances[instance] = None

    def put_job_account(self, account: JobAccount) -> None:
        """Replace what a job owes."""
        before = self.job_accounts.get(account.job)
        self._tally.job_account(self.jobs.get(account.job), before, account)
        self.job_accounts[account.job] = account
        if self._unpublished is not None:
            self._unpublished.jobs[account.job] = None
        self._unwritten.job_accounts[account.job] = None

    def count_month(self, increment: JobAccount, since: Millis, until: Millis) -> None:
        """Count for its tenant what a job was charged for a stretch of time."""
        job = self.jobs.get(increment.job)
        if job is not None:
            self._tally.tenants.spend(job.spec.tenant, increment.charged, since, until)

    def put_instance_account(self, account: InstanceAccount) -> None:
        """Replace what an instance cost."""
        before = self.instance_accounts.get(account.instance)
        self._tally.instance_account(self.instances[account.instance], before, account)
        self.instance_accounts[account.instance] = account
        if self._unpublished is not None:
            self._unpublished.instances[account.instance] = None
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

    def set_memory(self, memory: PolicyMemory | None, partition: str = "") -> None:
        """Keep the memory of a partition's policy, of the default one's if none is named."""
        if memory != self.memories.get(partition):
            self.memories[partition] = memory
            self._unwritten.values[document_name(partition)] = partial(document_of, memory)

    @property
    def memory(self) -> PolicyMemory | None:
        """That of the default policy."""
        return self.memories.get("")

    @property
    def learned(self) -> Knowledge:
        """Lessons about workloads and types."""
        return self._figures.learned

    @property
    def resolved(self) -> Resolved:
        """See `Records.resolved`."""
        return self._figures.resolved

    def resolve(self) -> Resolved:
        """See `PlanningRecords.resolve`."""
        return self._figures.resolve()

    def set_learned(self, learned: Knowledge) -> None:
        """Keep what was learned; written with the next round."""
        for voice in self._figures.learn(learned):
            self._worth.rates_changed(voice)

    def write_learned(self) -> None:
        """Have what was learned since the last time written with the next commit."""
        if self.learned is not self._learned_written:
            self._learned_written = self.learned
            self._unwritten.values["learned"] = self.learned.to_json

    def set_boots(self, boots: Boots) -> None:
        """Keep what is known of failed boots; written with the next commit."""
        self.boots = boots
        self._unwritten.values["boots"] = boots.to_json

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
        """Change the prices of offerings from now on."""
        at = prices.get
        self.set_catalog(
            tuple(
                replace(offering, price=at(offering.id, offering.price))
                for offering in self.catalog
            )
        )

    def set_catalog(self, catalog: Catalog) -> None:
        """Change what offerings are from now on."""
        self.catalog = catalog
        self._worth.prices_changed()
        self.view_cache.rates_changed()

    def set_sizes(self, learned: MemorySizes) -> None:
        """Remember how much memory workers have; `control.measure.memory.fit` has it apply."""
        self.sizes = learned
        self._unwritten.values["memory_sizes"] = dict(learned.measured)

    def set_market(self, market: SpotMarket) -> None:
        """Remember what was seen of the spot market; what has changed is encoded when written."""
        for name, part in market.documents.items():
            if part is not self.market.documents[name]:
                self._unwritten.values[name] = part.to_json
        self.market = market

    # -- look-ups --------------------------------------------------------------------------------

    def by_command(self, owner: str, command: str) -> JobId | None:
        """The job that an owner's submission made."""
        return self._commands.get((owner, command)) if command else None

    def members(self, job: JobId) -> Iterator[TaskRun]:
        """The task runs of a job, by index."""
        return self.runs.of(self.jobs[job])

    def gpu_ms(self, job: JobId) -> int:
        """The time for which tasks had GPUs, see `JobTasks.gpu_ms`."""
        return self.tasks[job].gpu_ms

    def in_hand(self, job: JobId) -> tuple[TaskRun, ...]:
        """Task runs of a job that have an instance or a target."""
        return tuple(map(self._touched.__getitem__, self.tasks[job].in_hand))

    def shown(self, job: JobId) -> list[RunId]:
        """The tasks of an array that a plan is about, see `JobTasks.shown`."""
        return self.tasks[job].shown(self.jobs[job], self.finished_tasks.first(job, self.runs))

    def replicas_left(self, job: JobId) -> int | None:
        """How many more of its tasks may be given an extra run, see `JobTasks.replicas_left`."""
        return self.tasks[job].replicas_left(self.jobs[job])

    def unseen(self, job: JobId) -> int:
        """How many tasks of an array wait that plans are not shown, see `JobTasks.unseen`."""
        return self.tasks[job].unseen(self.jobs[job])

    def kinds(self, job: JobId) -> tuple[TaskSpec, ...]:
        """The first of a job's tasks of each kind, see `JobTasks.kinds`."""
        return self.tasks[job].kinds

    def by_kind(self, job: JobId) -> tuple[Sequence[int], ...]:
        """The indices of a job's tasks of each kind, see `Kinds.groups`."""
        return self.tasks[job].by_kind.groups

    def task(self, run: TaskRun) -> TaskSpec:
        """The task of a task run."""
        return self.jobs[run.job].spec.tasks[run.index]

    def occupants(self, instance: InstanceId) -> tuple[TaskRun, ...]:
        """The task runs that take room on an instance."""
        return tuple(map(self._touched.__getitem__, self._occupants.get(instance, ())))

    def occupant_ids(self, instance: InstanceId) -> Collection[RunId]:
        """The ids of the task runs that take room on an instance."""
        return self._occupants.get(instance, ())

    def targeting(self, instance: InstanceId) -> tuple[TaskRun, ...]:
        """The task runs that are, or will be, on an instance."""
        staying = (run for run in self.occupants(instance) if run.target == instance)
        return (*staying, *self.coming(instance))

    def coming(self, instance: InstanceId) -> list[TaskRun]:
        """The task runs that are on their way to an instance."""
        return [self._touched[run] for run in self._coming.get(instance, ())]

    def demand(self, runs: Iterable[TaskRun], on: Instance | Offering) -> Resources:
        """The total demand of task runs on an instance, or on an offering of its family."""
        return total_demand(self, runs, on)

    def moving(self) -> tuple[TaskRun, ...]:
        """The running task runs that are to run elsewhere."""
        return tuple(map(self._touched.__getitem__, self._moving))

    def reservation(self, run: TaskRun) -> Reservation:
        """The reservation price of a task run's task, and the offering with that price."""
        return self._worth.reservation(self.jobs[run.job], run.index)

    def standalone_rates(self, job: JobSpec, task: TaskSpec) -> Rates:
        """See `Records.standalone_rates`."""
        return self.valuation(voice_of(job)).rates(task)

    def can_place(self, instance: InstanceId) -> bool:
        """Whether tasks may be given to the instance, now or when it is ready."""
        return self.can_stay(instance) and self.instances[instance].takes_tasks

    def can_stay(self, instance: InstanceId) -> bool:
        """Whether the tasks on the instance may stay there."""
        record = self.instances.get(instance)
        return record is not None and record.state in LIVE and record.leaving_ms is None

    def connected(self, instance: InstanceId) -> bool:
        """Whether the instance's worker has a session."""
        return instance in self.sessions

    @property
    def totals(self) -> Totals:
        """Sums over everything that ever was, what was forgotten included."""
        return replace(self._tally.totals(), suspended=self.suspended.by_tenant)

    # -- forgetting ------------------------------------------------------------------------------

    def forget(self, until: Millis, limit: int) -> None:
        """Let go of `limit` jobs and instances at most that were over by then; totals stay as is.

        If too much is over, the oldest go whatever the time. Only what is written may be forgotten,
        since `take_changes` looks the records up.
        """
        for _ in range(limit):
            job, instance = self._over.pop(until)
            if job is not None:
                self._forget_job(job)
            elif instance is None:
                return
            elif instance not in self.live:  # An owned node may have come back.
                self._forget_instance(instance)

    def forgets_next(self) -> Millis | None:
        """When that was over which will be forgotten next; `None` if nothing is over."""
        return self._over.next_ms()

    def _forget_job(self, name: JobId) -> None:
        job = self.jobs.pop(name)
        runs = self.tasks.pop(name).touched
        for run in runs:
            del self._touched[run]
        self.job_accounts.pop(name, None)
        self._commands.pop((job.spec.owner, job.command), None)
        if self._unpublished is not None:
            self._unpublished.jobs[name] = None
            self._unpublished.runs.update(runs)

    def _forget_instance(self, name: InstanceId) -> None:
        self.instances.pop(name, None)
        self.instance_accounts.pop(name, None)
        if self._unpublished is not None:
            self._unpublished.instances[name] = None

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
        self._unwritten.values.update(self._tally.take_documents())
        taken, self._unwritten = self._unwritten, Unwritten()
        return Changes(
            jobs=tuple(map(self.jobs.__getitem__, taken.jobs)),
            runs=tuple(map(self._touched.__getitem__, taken.runs)),
            instances=tuple(self.instances[key] for key in taken.instances),
            job_accounts=tuple(self.job_accounts[key] for key in taken.job_accounts),
            instance_accounts=tuple(self.instance_accounts[k] for k in taken.instance_accounts),
            rounds=tuple(taken.rounds),
            values=taken.values,
            explained=tuple(taken.explained),
        )
