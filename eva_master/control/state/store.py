"""The master's state: immutable records in indexed collections, and what of it is unwritten."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict
from functools import partial
from operator import itemgetter

from eva_master.control.state.active_load import ActiveLoad
from eva_master.control.state.counters import Counters
from eva_master.control.state.dependencies import Dependencies
from eva_master.control.state.records import total_demand
from eva_master.control.state.tally import Tally
from eva_master.control.state.unwritten import Unpublished, Unwritten
from eva_master.control.state.view_cache import ViewCache
from eva_master.learning.boots import Boots
from eva_master.learning.colocation import Key, lookup
from eva_master.learning.interruptions import Interruptions
from eva_master.learning.knowledge import Knowledge
from eva_master.learning.memory_sizes import MemorySizes
from eva_master.learning.standalone import StandaloneTable
from eva_master.model.accounting.totals import Totals
from eva_master.model.catalog import Catalog, Offering
from eva_master.model.changes import Changes, InstanceAccount, JobAccount, Round
from eva_master.model.errors import StorageError
from eva_master.model.events import CloudTrouble
from eva_master.model.ids import (
    InstanceId,
    JobId,
    Millis,
    OfferingId,
    Price,
    RunId,
    job_order,
    run_id,
)
from eva_master.model.job import JobSpec, TaskSpec
from eva_master.model.planning.plan import Json, PolicyMemory
from eva_master.model.planning.snapshot import ThroughputTable
from eva_master.model.records import Instance, Job, Progress, TaskRun
from eva_master.model.resources import Resources
from eva_master.model.states import LIVE, TERMINAL_JOB, InstanceState, RunState
from eva_master.model.values import replace
from eva_master.packing.valuation.job_valuation import JobValuation, Rates, Reservation

_SETS_REMEMBERED = 65_536
"""Task sets whose expected throughput is remembered at most."""


class State:
    """Everything the control loop knows.

    Records are immutable and replaced through the ``put_...`` methods, which keep the indexes
    and remember what has to be written to the journal. What is not journalled (sessions) is
    rebuilt from the world after a restart.

    What is over is forgotten after a while, see `forget`; the journal still has it, and `totals`
    still count it.

    Attributes:
        jobs: By id, in order of submission.
        runs: By id.
        instances: By id; gone ones too, until they are forgotten.
        job_accounts: What each job owes, as of the last booking.
        instance_accounts: What each instance cost, as of the last booking.
        sessions: The open session of each connected instance.
        catalog: Offerings, with what the cloud said about their availability.
        memory: The policy's.
        learned: About workloads and instance types.
        interruptions: What became of spot instances.
        boots: Boots that failed in a row.
        sizes: How much memory instance types have.
        trouble: Whether the cloud does what it is asked; not journalled.
        dependencies: Which jobs wait for which.
        view_cache: What `control.picture` made of the records, and what of it may be out of date.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.jobs: dict[JobId, Job] = {}
        self.runs: dict[RunId, TaskRun] = {}
        self.instances: dict[InstanceId, Instance] = {}
        self.job_accounts: dict[JobId, JobAccount] = {}
        self.instance_accounts: dict[InstanceId, InstanceAccount] = {}
        self.sessions: dict[InstanceId, int] = {}
        self.catalog = catalog
        self.memory: PolicyMemory | None = None
        self.learned = Knowledge()
        self._expected: dict[Key, int] = {}
        """What was looked up of it, until it changes."""
        self._learned_written = self.learned
        self.interruptions = Interruptions()
        self.boots = Boots()
        self.sizes = MemorySizes.of(catalog)
        self.counters = Counters()
        self.active: dict[JobId, None] = {}
        """Jobs that have not ended, in order of submission."""
        self.live: dict[InstanceId, None] = {}
        """Instances that are not gone, in order of launch."""
        self._occupants: defaultdict[InstanceId, dict[RunId, None]] = defaultdict(dict)
        self._targeting: defaultdict[InstanceId, dict[RunId, None]] = defaultdict(dict)
        self._moving: dict[RunId, None] = {}
        self._unplaced: dict[RunId, None] = {}
        self._valuation: JobValuation | None = None
        self._reservations: dict[JobId, tuple[Reservation, ...]] = {}
        """Of the active jobs that were asked about, as long as prices and rates are the same."""
        self._commands: dict[tuple[str, str], JobId] = {}
        self._names: dict[tuple[str, str], JobId] = {}
        self._members: dict[JobId, tuple[RunId, ...]] = {}
        self.trouble = CloudTrouble(None)
        self.view_cache = ViewCache()
        self._tally = Tally()
        self.active_load = ActiveLoad()
        self.dependencies = Dependencies()
        self._over: deque[tuple[Millis, type[Job] | type[Instance], str]] = deque()
        """Jobs that have ended and instances that are gone, those first that were over first."""
        self._unwritten = Unwritten()
        self._unpublished: Unpublished | None = None

    @classmethod
    def restored(cls, catalog: Catalog, written: Changes) -> State:
        """The state as the journal has it.

        Args:
            catalog: What is on sale now; remembered unavailability is applied to it.
            written: `Journal.load`'s answer, which need not have what is over.
        """
        state = cls(catalog)
        for job in sorted(written.jobs, key=_submission):
            state.put_job(job)
        for run in written.runs:
            state.put_run(run)
        for instance in sorted(written.instances, key=_launch):
            state.put_instance(instance)
        for account in written.job_accounts:
            state.put_job_account(account)
        for charged in written.instance_accounts:
            state.put_instance_account(charged)
        state._over = deque(sorted(state._over, key=itemgetter(0)))
        state._restore_values(written)
        state._unwritten = Unwritten()
        return state

    def _restore_values(self, written: Changes) -> None:
        values = written.documents()
        if isinstance(counters := values.get("counters"), dict):
            self.counters = Counters(**{k: v for k, v in counters.items() if isinstance(v, int)})
        if isinstance(totals := values.get("totals"), dict):
            self._tally.restore(totals)
        if isinstance(memory := values.get("memory"), dict):
            self.memory = PolicyMemory(
                policy=str(memory["policy"]),
                version=int(str(memory["version"])),
                data=dict(data) if isinstance(data := memory["data"], dict) else {},
            )
        if isinstance(learned := values.get("learned"), dict):
            self.set_learned(_knowledge(learned))
            self._learned_written = self.learned
        if isinstance(lives := values.get("interruptions"), dict):
            self.interruptions = Interruptions.from_json(lives)
        if isinstance(boots := values.get("boots"), dict):
            self.boots = Boots.from_json(boots)
        self.sizes = self.sizes.restored(values.get("memory_sizes"))
        if isinstance(unavailable := values.get("unavailable"), dict):
            for offering, told in unavailable.items():
                until, why = told if isinstance(told, list) else (told, "")
                self.set_unavailable([OfferingId(offering)], Millis(int(str(until))), str(why))

    # -- records ---------------------------------------------------------------------------------

    def put_job(self, job: Job) -> None:
        """Add or replace a job."""
        old = self.jobs.get(job.id)
        self.jobs[job.id] = job
        self.view_cache.job_changed(job.id)
        self._unwritten.jobs[job.id] = None
        self._tally.job(old, job)
        self.active_load.follow(old, job)
        self.dependencies.follow(job, self.jobs)
        if old is not None and old.waits and not job.waits:
            self._unplaced.update(
                (run.id, None) for run in self.members(job.id) if self._wants_place(run)
            )
        if self._unpublished is not None:
            self._unpublished.jobs[job.id] = None
        if old is None:
            self._commands[job.spec.owner, job.command] = job.id
            self._members[job.id] = tuple(run_id(job.id, i) for i in range(len(job.spec.tasks)))
        key = (job.spec.owner, job.spec.name)
        if job.state in TERMINAL_JOB:
            if old is None or old.state not in TERMINAL_JOB:
                self._over.append((Millis(job.history[-1][1]), Job, job.id))
            self.active.pop(job.id, None)
            self._reservations.pop(job.id, None)
            if self._names.get(key) == job.id:
                del self._names[key]
        else:
            self.active[job.id] = None
            self._names[key] = job.id

    def put_run(self, run: TaskRun) -> None:
        """Add or replace a task run."""
        old = self.runs.get(run.id)
        self.runs[run.id] = run
        self.view_cache.job_changed(run.job)
        self._unwritten.runs[run.id] = None
        self._tally.run(old, run)
        if self._unpublished is not None:
            self._unpublished.runs[run.id] = None
        if old is None or old.instance != run.instance:
            self._reindex(self._occupants, run.id, old.instance if old else None, run.instance)
            if self._unpublished is not None:
                self._unpublished.moved(old.instance if old else None, run.instance)
        if old is None or old.target != run.target:
            self._reindex(self._targeting, run.id, old.target if old else None, run.target)
        if self._wants_place(run):
            self._unplaced[run.id] = None
        else:
            self._unplaced.pop(run.id, None)
        if run.state is RunState.RUNNING and run.target not in (None, run.instance):
            self._moving[run.id] = None
        else:
            self._moving.pop(run.id, None)

    def _wants_place(self, run: TaskRun) -> bool:
        """Whether a plan should give it one; not while its job waits for others."""
        waiting = run.state is RunState.WAITING and run.target is None
        return waiting and run.job not in self.dependencies

    def put_progress(self, run: TaskRun, progress: Progress) -> None:
        """Replace the progress of a task run; that alone is neither journalled nor a new view."""
        if progress != run.progress or progress.at_ms != run.progress.at_ms:
            self.runs[run.id] = replace(run, progress=progress)
            if self._unpublished is not None:
                self._unpublished.runs[run.id] = None

    @staticmethod
    def _reindex(
        index: defaultdict[InstanceId, dict[RunId, None]],
        run: RunId,
        old: InstanceId | None,
        new: InstanceId | None,
    ) -> None:
        if old is not None:
            index[old].pop(run, None)
            if not index[old]:
                del index[old]
        if new is not None:
            index[new][run] = None

    def put_instance(self, instance: Instance) -> None:
        """Add or replace an instance."""
        old = self.instances.get(instance.id)
        self.instances[instance.id] = instance
        self.view_cache.instance_changed(instance.id)
        self._unwritten.instances[instance.id] = None
        if self._unpublished is not None:
            self._unpublished.instances[instance.id] = None
        if instance.state is InstanceState.GONE:
            if old is None or old.state is not InstanceState.GONE:
                self._over.append((Millis(instance.history[-1][1]), Instance, instance.id))
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
        self._tally.job_account(self.job_accounts.get(account.job), account)
        self.job_accounts[account.job] = account
        if self._unpublished is not None:
            self._unpublished.jobs[account.job] = None
        self._unwritten.job_accounts[account.job] = None

    def put_instance_account(self, account: InstanceAccount) -> None:
        """Replace what an instance cost."""
        before = self.instance_accounts.get(account.instance)
        self._tally.instance_account(before, account)
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

    def set_memory(self, memory: PolicyMemory | None) -> None:
        """Keep the policy's memory; an unchanged one is not written again."""
        if memory != self.memory:
            self.memory = memory
            self._unwritten.values["memory"] = None if memory is None else partial(asdict, memory)

    @property
    def throughput(self) -> ThroughputTable:
        """What was learned about co-location."""
        return self.learned.throughput

    @property
    def standalone(self) -> StandaloneTable:
        """What was learned about tasks on their own."""
        return self.learned.standalone

    def expected_ppm(self, entry: Key) -> int:
        """How fast a task is expected to run beside others, see `learning.colocation.lookup`."""
        known = self._expected.get(entry)
        if known is None:
            if len(self._expected) >= _SETS_REMEMBERED:
                self._expected.clear()
            known = self._expected[entry] = lookup(self.throughput, entry)
        return known

    def set_learned(self, learned: Knowledge) -> None:
        """Keep what was learned; written with the next round."""
        if learned.throughput is not self.learned.throughput:
            self._expected.clear()
        before, self.learned = self.learned, learned
        if learned.standalone.known is not before.standalone.known:
            self._reservations.clear()
            if self._valuation is not None:
                self._valuation.follow(learned.standalone.known)

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
        """Remember that offerings are not to be launched for a while.

        Args:
            offerings: Which.
            until: When they may be tried again; `None` for now.
            why: In words for the user.
        """
        refused = set(offerings)
        self.catalog = tuple(
            replace(known, unavailable_until=until, why_unavailable=why)
            if known.id in refused
            else known
            for known in self.catalog
        )
        self._unwritten.values["unavailable"] = {
            known.id: [known.unavailable_until, known.why_unavailable]
            for known in self.catalog
            if known.unavailable_until is not None
        }

    def set_prices(self, prices: Mapping[OfferingId, Price]) -> None:
        """Change what offerings cost from now on."""
        at = prices.get
        self.set_catalog(tuple(replace(it, price=at(it.id, it.price)) for it in self.catalog))

    def set_catalog(self, catalog: Catalog) -> None:
        """Change what offerings are from now on."""
        self.catalog = catalog
        self._valuation = None
        self._reservations.clear()
        self.view_cache.rates_changed()

    def set_sizes(self, learned: MemorySizes) -> None:
        """Remember how much memory workers have; `control.measure.memory.fit` has it apply."""
        self.sizes = learned
        self._unwritten.values["memory_sizes"] = dict(learned.measured)

    def count_spot(self, machine: str, lived_ms: int, *, interrupted: bool) -> None:
        """Learn from the life of a spot instance."""
        self.interruptions = self.interruptions.seen(machine, lived_ms, interrupted=interrupted)
        self._unwritten.values["interruptions"] = self.interruptions.to_json()

    # -- look-ups --------------------------------------------------------------------------------

    def by_command(self, owner: str, command: str) -> JobId | None:
        """The job that an owner's submission made."""
        return self._commands.get((owner, command)) if command else None

    def by_name(self, owner: str, name: str) -> JobId | None:
        """The owner's active job of that name."""
        return self._names.get((owner, name))

    def members(self, job: JobId) -> Iterator[TaskRun]:
        """The task runs of a job, by index."""
        return (self.runs[run] for run in self._members[job] if run in self.runs)

    def task(self, run: TaskRun) -> TaskSpec:
        """What the task run is a task run of."""
        return self.jobs[run.job].spec.tasks[run.index]

    def occupants(self, instance: InstanceId) -> tuple[TaskRun, ...]:
        """The task runs that take room on an instance."""
        return tuple(map(self.runs.__getitem__, self._occupants.get(instance, ())))

    def occupant_ids(self, instance: InstanceId) -> Collection[RunId]:
        """The ids of the task runs that take room on an instance."""
        return self._occupants.get(instance, ())

    def targeting(self, instance: InstanceId) -> tuple[TaskRun, ...]:
        """The task runs that are, or will be, on an instance."""
        return tuple(map(self.runs.__getitem__, self._targeting.get(instance, ())))

    def demand(self, runs: Iterable[TaskRun], on: Instance | Offering) -> Resources:
        """What task runs take together of an instance or an offering of its kind."""
        return total_demand(self, runs, on)

    @property
    def unplaced(self) -> bool:
        """Whether any task run waits for a plan to give it a place."""
        return bool(self._unplaced)

    def moving(self) -> tuple[TaskRun, ...]:
        """The running task runs that are to run elsewhere."""
        return tuple(self.runs[run] for run in self._moving)

    @property
    def valuation(self) -> JobValuation:
        """What jobs are worth at the prices of this moment and the rates that are known."""
        if self._valuation is None:
            self._valuation = JobValuation(self.catalog, self.standalone.known)
        return self._valuation

    def reservation(self, run: TaskRun) -> Reservation:
        """What a task run's task is worth, and on which offering."""
        found = self._reservations.get(run.job)
        if found is None:
            job = self.jobs[run.job]
            found = self.valuation.of(job.spec)
            if job.state not in TERMINAL_JOB:
                self._reservations[run.job] = found
        return found[run.index]

    def reservations_of(self, spec: JobSpec) -> tuple[Reservation, ...]:
        """What each task of a job is worth, be the job submitted or not."""
        return self.valuation.of(spec)

    def standalone_rates(self, task: TaskSpec) -> Rates:
        """Standalone rates of a task, see `JobValuation.rates`."""
        return self.valuation.rates(task)

    def can_place(self, instance: InstanceId) -> bool:
        """Whether tasks may be given to the instance, now or when it is ready."""
        return self.can_stay(instance) and not self.instances[instance].at_risk

    def can_stay(self, instance: InstanceId) -> bool:
        """Whether tasks that are on the instance may stay there."""
        known = self.instances.get(instance)
        return known is not None and known.state in LIVE and known.leaving_ms is None

    def connected(self, instance: InstanceId) -> bool:
        """Whether the instance's worker has a session."""
        return instance in self.sessions

    @property
    def totals(self) -> Totals:
        """Sums over everything that ever was, what was forgotten included."""
        return self._tally.totals()

    # -- forgetting ------------------------------------------------------------------------------

    def forget(self, until: Millis, limit: int) -> None:
        """Let go of jobs that have ended and of instances that are gone; totals stay as they are.

        Only what is written may be forgotten, since `take_changes` looks the records up.

        Args:
            until: What was over by then is forgotten.
            limit: At most so many jobs and instances, the oldest ones.
        """
        for _ in range(limit):
            if not self._over or self._over[0][0] > until:
                return
            _, kind, name = self._over.popleft()
            if kind is Job:
                self._forget_job(JobId(name))
            else:
                self._forget_instance(InstanceId(name))

    def forgets_next(self) -> Millis | None:
        """When that was over which will be forgotten next; `None` if nothing is over."""
        return self._over[0][0] if self._over else None

    def _forget_job(self, name: JobId) -> None:
        job = self.jobs.pop(name)
        runs = self._members.pop(name)
        for run in runs:
            self.runs.pop(run, None)
        self.job_accounts.pop(name, None)
        self._commands.pop((job.spec.owner, job.command), None)
        if self._unpublished is not None:
            self._unpublished.jobs[name] = None
            self._unpublished.runs.update(dict.fromkeys(runs))

    def _forget_instance(self, name: InstanceId) -> None:
        self.instances.pop(name, None)
        self.instance_accounts.pop(name, None)
        if self._unpublished is not None:
            self._unpublished.instances[name] = None

    # -- publishing ------------------------------------------------------------------------------

    def begin_publishing(self) -> None:
        """Keep from now on what `take_unpublished` hands out; at first that is everything."""
        self._unpublished = Unpublished(
            dict.fromkeys(self.jobs), dict.fromkeys(self.runs), dict.fromkeys(self.instances)
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
            return _NO_CHANGES
        if self._tally.changed:
            self._tally.changed = False
            self._unwritten.values["totals"] = self._tally.to_json
        taken, self._unwritten = self._unwritten, Unwritten()
        return Changes(
            jobs=tuple(self.jobs[key] for key in taken.jobs),
            runs=tuple(self.runs[key] for key in taken.runs),
            instances=tuple(self.instances[key] for key in taken.instances),
            job_accounts=tuple(self.job_accounts[key] for key in taken.job_accounts),
            instance_accounts=tuple(self.instance_accounts[k] for k in taken.instance_accounts),
            rounds=tuple(taken.rounds),
            values=taken.values,
        )


def _knowledge(document: Mapping[str, Json]) -> Knowledge:
    try:
        return Knowledge.from_json(document)
    except ValueError as error:
        raise StorageError(
            f"the journal's record of what was learned cannot be read: {error}",
            hint="start the release that wrote it; or delete the row 'learned' of the table "
            "'documents', and everything is learned anew",
        ) from error


def _submission(job: Job) -> tuple[int, str]:
    """When a job was submitted among all jobs."""
    return job_order(job.id)


def _launch(instance: Instance) -> tuple[int, int, str]:
    """When an instance was asked for; those of one plan are numbered."""
    return instance.requested_ms, len(instance.id), instance.id


_NO_CHANGES = Changes()
