"""Outcome of a job's submission: the same snapshot, stages and lines, on a copy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields

from eva_master.control.features.budgets.foreseeing import rest
from eva_master.control.features.deadlines.market_choice import at_submission
from eva_master.control.features.deadlines.refusing import refusal
from eva_master.control.features.partitions import membership
from eva_master.control.features.pools.admission import bar, gives_room
from eva_master.control.measure import remaining
from eva_master.control.planning import lasting_limits
from eva_master.control.planning.snapshot_builder import snapshot
from eva_master.control.planning.validate_plan import NOTHING_DECIDED, Decision
from eva_master.control.readside import shown_tasks
from eva_master.control.readside.model import ClusterModel
from eva_master.control.rounds import pipeline
from eva_master.control.rounds.draft import Question
from eva_master.control.rounds.launched_disks import launched
from eva_master.control.rounds.moment import Moment, Recent
from eva_master.control.settings import Settings
from eva_master.control.standing.membership import Membership
from eva_master.control.standing.queue import Queue
from eva_master.control.standing.rooms import MemberRoom
from eva_master.control.standing.standing import Standing, queue_of
from eva_master.control.state.job_tasks import JobTasks
from eva_master.control.state.records import PlanningRecords
from eva_master.control.state.view_cache import ViewCache
from eva_master.model.accounting.totals import PartitionTotals
from eva_master.model.catalog import Offering
from eva_master.model.fleet.partitions import Partition
from eva_master.model.job import JobSpec
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.sizes import with_sizes
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.planning.standing import Line, Newcomers, Pool
from eva_master.model.records import Job, TaskRun
from eva_master.model.resources import NOTHING, Resources
from eva_master.model.values import replace
from eva_master.packing.room import room_beside
from eva_master.packing.valuation.on_demand import OnDemandPrices
from eva_master.ports.previews import Foreseen, Where
from eva_wire.values.errors import EvaError
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId, run_id, run_order
from eva_wire.values.states import JobState, RunState

_FILLED_AT_ONCE = 1_000
"""So many tasks are given room from lines at most."""


@dataclass(frozen=True, slots=True)
class _Scratch(ClusterModel):
    """A model with views of its own, for one snapshot."""

    view_cache: ViewCache = field(default_factory=ViewCache)
    membership: Membership = field(default_factory=Membership)
    with_deadlines: dict[JobId, None] = field(default_factory=dict)

    def runs_of(self, job: JobId) -> Iterator[TaskRun]:
        """The task runs of a job to which something has happened."""
        return (run for run in self.members(job) if run.id in self.touched)


class JobPreview:
    """The submission of a job, tried on a copy of the records; see `ports.reading.JobPreview`.

    Args:
        model: The cluster as it is.
        spec: The job.
        now: Time of the submission.

    Attributes:
        job: Id that the job would get.
        partition: Name of the partition in which the job would run.
        refused: The error with which the submission would be refused, for its deadline or for
            limits that no such job can meet; `None` if neither forbids it.
        question: Snapshot that the policy would be asked about; `None` if no plan is needed.
    """

    def __init__(self, model: ClusterModel, spec: JobSpec, now: Millis) -> None:
        self._now, self._settings = now, model.settings
        record = _submitted(model, spec, now)
        self.job = record.id
        self._home = model.partitions.home(record.partition)
        self.partition = self._home.name
        self._recent = model.recents.get(self.partition, Recent())
        self._records = _with(model, record)
        self.refused: EvaError | None = lasting_limits.refusal(
            self._records, self._settings, record.spec, self._home
        ) or refusal(self._records, record.spec, now, self._settings)
        if (buys := at_submission(self._records, record, now, self._settings)) is not record.buys:
            self._records = _with(model, replace(record, buys=buys, buys_ms=now))
        self._waits = record.waits
        self._rests = rest(model, self._settings, spec.owner, now)
        self._joined: dict[RunId, InstanceId] = {}
        if not record.waits and not self._rests:
            self._join(model, record)
        self.question: Snapshot | None = None
        self._asked: Question | None = None
        waiting = self._records.counts[self.job].states.get(RunState.WAITING, 0)
        unplaced = waiting - len(self._joined)
        if not record.waits and not self._rests and unplaced > 0:
            self._moment = self._present(model)
            self._asked = pipeline.ask(self._moment)
            self.question = self._asked.shown

    @property
    def memory(self) -> PolicyMemory | None:
        """The policy's memory of earlier rounds."""
        if self._home.default:
            return self._records.memory
        return self._records.memories.get(self.partition)

    def _present(self, model: ClusterModel) -> Moment:
        sold = tuple(filter(self._home.sells, model.catalog))
        recent = replace(self._recent, gate=replace(self._recent.gate, now=self._now))
        return Moment(
            self._records,
            self._settings,
            self._home,
            sums=self._records.totals.partitions,
            prices=OnDemandPrices(sold, model.figures.resolved.standalone),
            now=self._now,
            recent=recent,
            whole=snapshot(self._records, self._now, self._settings),
        )

    def _join(self, model: ClusterModel, record: Job) -> None:
        """Put the job into the lines that are open to it, and give it the free room."""
        statement = model.stated.get(self.partition)
        spec = record.spec
        if statement is None or not spec.stands_in_line:
            return
        lines = _Lines(self._records, self._settings, self._home, self._now, self._recent)
        task_ms = remaining.usual_ms(self._records, record)

        def takes(newcomers: Newcomers) -> bool:
            return newcomers.take(spec.latency, task_ms)

        if not lines.state(statement.pools, statement.lines).join(
            record.id, lines.queue(record.id), takes
        ):
            return
        self._recent = replace(self._recent, joined=self._recent.joined | {record.id})
        self._joined = {
            run: name for run, name in lines.filled({}) if run.startswith(f"{self.job}/")
        }
        self._records = _placed(self._records, self._joined, self._now)

    def foreseen(self, plan: Plan | None) -> Foreseen:
        """The outlook of the job.

        Args:
            plan: The policy's answer; `None` if it was not asked.
        """
        if self._rests:
            return self._outcome(NOTHING_DECIDED, self._rests)
        if self._waits:
            jobs = ", ".join(self._records.jobs[self.job].spec.stage.depends_on)
            return self._outcome(NOTHING_DECIDED, f"waits for {jobs} to end")
        if plan is None or self._asked is None:
            statement = self._records.stated.get(self.partition)
            pools = () if statement is None else statement.pools
            return self._outcome(replace(NOTHING_DECIDED, pools=pools))
        ordered = {
            instance.id
            for instance in self._records.live.values()
            if instance.drain is not None and (instance.owned or instance.drain.ordered)
        }
        answer = pipeline.answer(self._moment, self._asked, plan, (), ordered)
        outcome = self._outcome(answer.decision)
        return replace(outcome, reasons=plan.reasons)

    def _outcome(self, decision: Decision, waits: str = "") -> Foreseen:
        seen = snapshot(self._records, self._now, self._settings)
        seen = with_sizes(seen, {size.job: size.members for size in decision.sizes})
        before: dict[RunId, Where] = {
            run.id: run.instance for run in seen.runs if run.instance is not None
        }
        places = {**before, **dict(decision.places)}
        for suspend in decision.suspends:
            places.pop(suspend.run, None)
        waiting = dict(decision.holds)
        view = next((job for job in seen.jobs if job.id == self.job), None)
        if not waits:
            lines = _Lines(self._records, self._settings, self._home, self._now, self._recent)
            lines.state(decision.pools, decision.lines, adopted=False)
            for run, place in lines.filled(dict(decision.places)):
                places.setdefault(run, place)
            for run, why in lines.places_in_line(view).items() if view is not None else ():
                waiting[run] = f"{why}; {waiting[run]}" if waiting.get(run) else why
        ours = {run for run in places if run.startswith(f"{self.job}/")}
        ours.update(() if view is None else view.runs)
        runs = tuple(sorted(ours, key=run_order))
        if waits:
            count = len(self._records.jobs[self.job].spec.tasks)
            runs = tuple(run_id(self.job, index) for index in range(min(count, 64)))
            waiting.update(dict.fromkeys(runs, waits))
        stays: set[Where] = {
            member for pool in decision.pools if not pool.shared for member in pool.members
        }
        return Foreseen(
            snapshot=seen,
            job=view,
            runs=runs,
            before={run: str(place) for run, place in before.items()},
            places=places,
            waiting=waiting,
            offerings=self._offerings(seen, decision),
            stays=frozenset(stays),
            suspends=decision.suspends,
        )

    def _offerings(self, seen: Snapshot, decision: Decision) -> dict[Where, Offering]:
        """Offerings at the prices that are billed."""
        records = self._records
        offerings: dict[Where, Offering] = {
            view.id: records.instances[view.id].offering for view in seen.instances
        }
        offerings.update(launched(records, decision).items())
        return offerings


class _Lines:
    """Lines of a partition, filled with the room that is free."""

    def __init__(
        self,
        records: _Scratch,
        settings: Settings,
        partition: Partition,
        now: Millis,
        recent: Recent,
    ) -> None:
        self._held_back = recent.held_back
        self._anew = False
        self._records = records
        self._settings = settings
        self._home = partition
        self._now = now
        self._standing = Standing()
        self._used: dict[InstanceId, Resources] = {}
        self._room: dict[JobId, int] = {}
        self._filled: dict[RunId, InstanceId] = {}
        for job in records.active:
            for run in records.in_hand(job):
                for place in {run.instance, run.target} - {None}:
                    self._take(run, InstanceId(str(place)))

    def _take(self, run: TaskRun, place: InstanceId) -> None:
        family = self._records.instances[place].offering.type.family
        need = self._records.task(run).demand_on(family)
        self._used[place] = self._used.get(place, NOTHING) + (need or NOTHING)

    def queue(self, job: JobId) -> Queue:
        """The waiting tasks of a job."""
        return queue_of(self._records.jobs[job], self._records.runs_of(job), self._now)

    def state(
        self, pools: tuple[Pool, ...], lines: tuple[Line, ...], *, adopted: bool = True
    ) -> Standing:
        """Take over what a plan states, be it adopted already or not."""
        self._anew = not adopted
        self._standing.state(pools, lines, self.queue, self._records.in_hand)
        return self._standing

    def filled(self, places: Mapping[RunId, Where]) -> Iterator[tuple[RunId, InstanceId]]:
        """Give free room to tasks that wait in the lines.

        Args:
            places: The places of task runs in a plan.

        Yields:
            Each task run that got room, with its instance.
        """
        for name, where in places.items():
            run = self._records.runs[name]
            if isinstance(where, str):
                self._take(run, where)
            self._standing.follow(replace(run, target=InstanceId(str(where))), self._now)
        for _ in range(_FILLED_AT_ONCE):
            head = self._standing.next(self._free, self._admitted, self._now)
            if head is None:
                return
            run = self._records.runs[run_id(head.job, head.index)]
            self._take(run, head.instance)
            self._room[head.job] -= 1
            self._standing.follow(replace(run, target=head.instance), self._now)
            self._standing.touch_instance(head.instance)
            self._filled[run.id] = head.instance
            yield run.id, head.instance

    def _free(self, name: InstanceId) -> MemberRoom | None:
        instance = self._records.live.get(name)
        connected = self._records.is_connected(name)
        if instance is None or not gives_room(instance, connected=connected, stated=self._anew):
            return None
        kind = instance.offering.type
        free = room_beside(instance.offering, self._used.get(name, NOTHING))
        return MemberRoom(self._standing.pool_of[name], kind.family, free)

    def _admitted(self, name: JobId) -> bool:
        job = self._records.jobs.get(name)
        if job is None or name not in self._records.active:
            return False
        if name not in self._room:
            self._room[name] = self._records.placeable(name)
        barred = bar(
            self._records,
            self._settings,
            self._home,
            job,
            self._now,
            placeable=self._room[name],
            held_back=lambda: name in self._held_back,
        )
        return barred is None

    def places_in_line(self, view: JobView) -> dict[RunId, str]:
        """The place in line of each task of a job that has no room."""
        texts: dict[RunId, str] = {}
        job = view.id
        lines = [line for line in self._standing.lines if job in line.jobs]
        if not lines:
            return texts
        first = min(lines, key=lambda line: (line.rank, line.jobs.index(job)))
        ahead = 0
        for other in first.jobs[: first.jobs.index(job)]:
            counts = self._records.counts.get(other)
            ahead += 0 if counts is None else counts.states.get(RunState.WAITING, 0)
        ahead -= sum(not run.startswith(f"{job}/") for run in self._filled)
        names = ", ".join(dict.fromkeys(pool for line in lines for pool in line.pools))
        pools = "pools" if "," in names else "pool"
        before = f", behind {max(0, ahead):,} other tasks" if ahead > 0 else ", first of all"
        for run in view.runs:
            if run not in self._filled:
                texts[run] = f"in line for room in {pools} {names}{before}"
        return texts


def _submitted(model: ClusterModel, spec: JobSpec, now: Millis) -> Job:
    """The job record that a submission would make."""
    partitions = model.partitions
    if partitions.divided and not spec.partition:
        spec = replace(spec, partition=membership.chosen(model, partitions, spec, now))
    home = partitions.home(spec.partition)
    if home.forking is not None:
        spec = home.forking.applied(spec, model.settings.nodes_of(home).count)
    return Job(
        id=JobId(f"{spec.name}-{model.counters.jobs + 1}"),
        spec=spec,
        submitted_ms=now,
        history=((JobState.PENDING.value, int(now)),),
        command="",
    )


def _with(model: ClusterModel, job: Job) -> _Scratch:
    """A copy of a model that has a job, too."""
    values = {each.name: getattr(model, each.name) for each in fields(ClusterModel) if each.init}
    put = {job.id: job}
    counters = model.counters
    values.update(
        jobs=model.jobs.updated(put, []),
        active=model.active.updated(put, []),
        counts=model.counts.updated({job.id: JobTasks(job).counted({})}, []),
        counters=replace(counters, jobs=counters.jobs + 1, arrivals=counters.arrivals + 1),
        totals=replace(model.totals, partitions=_arrived(model, job)),
    )
    return _viewed(_Scratch(**values))


def _arrived(model: ClusterModel, job: Job) -> Mapping[str, PartitionTotals]:
    """The sums over partitions after the arrival of one more job."""
    home, sums = model.partitions.home(job.partition), model.totals.partitions
    if home.default:
        return sums
    totals = sums.get(home.name, PartitionTotals())
    return {**sums, home.name: replace(totals, arrivals=totals.arrivals + 1)}


def _placed(scratch: _Scratch, places: Mapping[RunId, InstanceId], now: Millis) -> _Scratch:
    """A copy in which waiting task runs have got room."""
    if not places:
        return scratch
    put = {
        run: replace(
            scratch.runs[run],
            target=place,
            instance=place,
            history=((RunState.STARTING.value, int(now)),),
        )
        for run, place in places.items()
    }
    touched = scratch.touched.updated(put, [])
    changed = dict.fromkeys(put)
    index = shown_tasks.followed(scratch.index, changed, scratch.touched, touched)
    values = {each.name: getattr(scratch, each.name) for each in fields(ClusterModel) if each.init}
    residents: dict[InstanceId, tuple[RunId, ...]] = {}
    for run, place in places.items():
        residents[place] = (*residents.get(place, scratch.residents.get(place, ())), run)
    values.update(touched=touched, index=index, residents=scratch.residents.updated(residents, []))
    return _viewed(_Scratch(**values))


def copied(model: ClusterModel) -> PlanningRecords:
    """A copy of a model of which snapshots can be made."""
    values = {each.name: getattr(model, each.name) for each in fields(ClusterModel) if each.init}
    return _viewed(_Scratch(**values))


def _viewed(scratch: _Scratch) -> _Scratch:
    """A copy of which all views are to be made."""
    for job, record in scratch.active.items():
        scratch.view_cache.job_changed(job)
        if record.spec.deadline is not None:
            scratch.with_deadlines[job] = None
    for instance, view in scratch.live.items():
        scratch.view_cache.instance_changed(instance)
        scratch.membership.follow(view)
    return scratch
