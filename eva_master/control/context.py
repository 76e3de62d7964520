"""The context of one turn: what it works on and has touched, beside the journalled state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TypeVar, assert_never

from eva_master.control.alarms import Alarm, Alarms, Wake
from eva_master.control.attempts.past import with_past_attempt
from eva_master.control.lending import payments, worths
from eva_master.control.measure import attained, learn, ledger, stored
from eva_master.control.measure.delays import LatencyMeters
from eva_master.control.measure.throughput import Meters, worked_ms
from eva_master.control.outbox import Outbox
from eva_master.control.settings import Settings
from eva_master.control.standing.standings import Standings
from eva_master.control.state.derived.emptied import EmptiedMemory
from eva_master.control.state.queue_memory import SharedLimitsMemory
from eva_master.control.state.records import crew
from eva_master.control.state.store import State
from eva_master.learning.market.pools import Pool
from eva_master.model.catalog import Offering, Purchase
from eva_master.model.events import CheckpointsListed
from eva_master.model.forks.merging import MergeRound
from eva_master.model.ids import InstanceId, JobId, Millis, RunId
from eva_master.model.job import Stragglers
from eva_master.model.planning.estimate import Estimates
from eva_master.model.records import Drain, Instance, Job, StopReason, TaskRun
from eva_master.model.resources import Resources
from eva_master.model.states import (
    HOLDING,
    LIVE,
    TERMINAL_JOB,
    TERMINAL_RUN,
    InstanceState,
    JobState,
    RunState,
)
from eva_master.model.values import replace
from eva_master.packing.deadlines.choice import Chooser
from eva_master.packing.deadlines.table import Outlook
from eva_master.packing.deadlines.thin_work import ThinWork

_Name = TypeVar("_Name", JobId, RunId, InstanceId)


def _leaves_queues(old: Job, job: Job) -> bool:
    """Whether a job that waited for limits does so no more."""
    ends = job.state is JobState.ENDING is not old.state
    return ends or (job.suspension is not None and old.suspension is None)


ToldMerge = tuple[tuple[InstanceId, int, int | None], MergeRound, Millis]
"""Receiver (an attempt on an instance, in a session), message, and time of a fork's order."""
LATE_LOOK_MS = 5_000
"""Least time from one check for an array's late tasks to the next."""
_SILENT_WINDOWS = 3
"""A task that has reported no step for this many windows is assumed to report none, ever."""


@dataclass
class FailureMemory:
    """Memory of recent failures; not journalled, so a restart forgets it.

    Attributes:
        early: A hash of how each task run last failed soon after its start, by job.
        excused: Number of failures in a row, of a gang or of each task of an array, that were their
            instances' fault, by job. A gang's are kept under its first task.
        faults: Jobs of the failures in a row on an instance that were its fault.
    """

    early: dict[JobId, dict[RunId, int]] = field(default_factory=dict)
    excused: dict[JobId, dict[RunId, int]] = field(default_factory=dict)
    faults: dict[InstanceId, list[JobId]] = field(default_factory=dict)

    def forget(self, job: JobId) -> None:
        """Forget a job, which has ended."""
        self.early.pop(job, None)
        self.excused.pop(job, None)


@dataclass(slots=True)
class StandstillMemory:
    """Memory of machines that stand still; a restart of the master forgets it.

    Attributes:
        heard: When the agent last told for how long a task run that runs has run.
        credited: When a job was last credited with time at rest for it, and with how much.
        asked: Since when the agents of a job that seems to exceed its `max_duration` are asked.
        patient_until: Until when nothing is given up for its silence, since this machine slept.
    """

    heard: dict[RunId, Millis] = field(default_factory=dict)
    credited: dict[JobId, tuple[Millis, int]] = field(default_factory=dict)
    asked: dict[JobId, Millis] = field(default_factory=dict)
    patient_until: Millis = Millis(0)

    def forget(self, job: JobId) -> None:
        """Forget a job, which has ended."""
        self.credited.pop(job, None)
        self.asked.pop(job, None)


@dataclass(slots=True)
class DeadlineMemory:
    """Memory of jobs with deadlines; a restart of the master forgets it.

    Attributes:
        outlooks: The last forecast for each set of pools, and until when it holds.
        chooser: Chooser, with its memory of tables.
        thin_work: Places of the work that has little time to lose.
        free: Free room on on-demand instances in a turn.
        looks: When each job with a deadline or a wait for spot instances is checked next.
    """

    outlooks: dict[tuple[Pool, ...], tuple[Millis, Outlook]] = field(default_factory=dict)
    chooser: Chooser = field(default_factory=Chooser)
    thin_work: ThinWork = field(default_factory=ThinWork)
    free: tuple[Millis, list[tuple[Offering, Resources]]] = (Millis(-1), [])
    looks: dict[JobId, Millis] = field(default_factory=dict)

    def forget(self, job: JobId) -> None:
        """Forget a job, which has ended."""
        self.looks.pop(job, None)
        self.thin_work.drop(job)


class Context:
    """The context in which events are applied and entities converged.

    Every change of a record goes through here, so that accounts are booked before who is where
    changes, and whatever may now have something to do is looked at.
    """

    def __init__(self, state: State, settings: Settings) -> None:
        self.state, self.settings = state, settings
        self.alarms = Alarms()
        self.outbox = Outbox(state, settings, self.alarms)
        self.meters, self.latency_meters = Meters(settings.window_ms), LatencyMeters()
        self.now = Millis(0)
        self.plan_wanted = self.closing_down = False
        self.silent: dict[InstanceId, Millis] = {}
        """Since when a ready instance's worker has had no session."""
        self.unwanted: dict[InstanceId, Millis] = {}
        """Since when the cloud has been listing an instance that the master never launched."""
        self.unproven: set[InstanceId] = set()
        """Instances whose workers have registered, and on which no task has run yet."""
        self.proving: dict[InstanceId, Millis] = {}
        """When the first task began to run on an instance, until it has outlived that."""
        self.deadlines = DeadlineMemory()
        self.standstills = StandstillMemory()
        self.refused: set[str] = set()
        """Partitions whose spot launches were refused in this turn."""
        self.failures = FailureMemory()
        self.standings = Standings(part.name for part in settings.partitions.all)
        self.asked: dict[JobId, int] = {}
        """The number of the question about a gang's checkpoints that has no answer yet."""
        self.listed: dict[JobId, CheckpointsListed] = {}
        """Stored checkpoints of gangs at rest."""
        self.emptied = EmptiedMemory(map(state.instances.__getitem__, state.live))
        self.resting: dict[JobId, Millis] = {}
        """Since when no task of an array that is running has held an instance."""
        self.awaited_members: dict[JobId, RunId] = {}
        """For gangs that wait to start, a member whose target was not ready."""
        self.told_merges: dict[JobId, dict[RunId, ToldMerge]] = {}
        """The last order to each running fork in the epoch under way."""
        self.looks_for_late: set[JobId] = set()
        """Arrays whose late tasks are looked for at intervals, since late ones get extra runs."""
        self.late: set[str] = set()
        """Partitions whose next plan is made although policies would see nothing new."""
        self.declined: dict[JobId, Millis] = {}
        """Jobs whose policies did not use available room, with the time."""
        self.rooms_left: Counter[InstanceId] = Counter()
        """Number of tasks that have ended on a member of a pool in this turn, less tasks that lines
        have placed there.
        """
        self.claimed: dict[str, set[InstanceId]] = {}
        """Instances with room kept for waiting task runs, by partition, as of its last plan; a
        restart forgets them, and plans.
        """
        self.ended_in_pools: set[JobId] = set()
        self.came_to_lines: set[JobId] = set()
        """Jobs of these tasks."""
        self.shared_limits = SharedLimitsMemory()
        self.over_quota: dict[str, set[JobId]] = {}
        """Jobs that stand in lines and wait for their tenant's quota, by tenant."""
        # Touched members of gangs that were not touched as a whole.
        self._jobs: dict[JobId, dict[RunId, None] | None] = {}
        self._runs, self._instances = dict[RunId, None](), dict[InstanceId, None]()
        self._resync = False

    def begin(self, now: Millis) -> None:
        """Begin a turn; time never goes back from one turn to the next."""
        self.now = Millis(max(now, self.now))
        self.emptied.begin()
        self.outbox.begin(self.now)

    def vacated(self, run: TaskRun) -> None:
        """A task run has ended: there is to be a plan, unless its room is that of a pool.

        Then there is one if others wait, and a line gives it to none of them; or if the room is
        kept for somebody.
        """
        if self.over_quota:
            tenant = self.state.jobs[run.job].spec.tenant
            for job in sorted(self.over_quota.pop(tenant, ())):
                self.standings.touch_job(job)
        place = run.instance
        if place is not None and (run.pool or self.state.instances[place].stands):
            self.rooms_left[place] += 1
            self.ended_in_pools.add(run.job)
            self.plan_if_claimed(place)
        else:
            self.plan_wanted = True

    def plan_if_claimed(self, instance: InstanceId) -> None:
        """Have a plan made if room on an instance is kept for task runs that wait."""
        if any(instance in kept for kept in self.claimed.values()):
            self.plan_wanted = True

    # -- touching --------------------------------------------------------------------------------

    def touch_job(self, job: JobId) -> None:
        """Have a job converged in this turn, with all of its tasks."""
        self._jobs[job] = None

    def touch_run(self, run: TaskRun) -> None:
        """Have a task converged in this turn: with its gang, or by itself."""
        if self.state.jobs[run.job].is_gang:
            members = self._jobs.setdefault(run.job, {})
            if members is not None:
                members[run.id] = None
        else:
            self._runs[run.id] = None

    def touch_instance(self, instance: InstanceId) -> None:
        """Have an instance converged in this turn."""
        self._instances[instance] = None

    def touch_everything(self) -> None:
        """Have every job and instance converged in this turn, and compared with the world."""
        self._resync = True

    def wake(self, alarm: Alarm) -> None:
        """Carry out the purpose of an alarm that rings."""
        match alarm.wake:
            case Wake.JOB:
                self.touch_job(JobId(alarm.about))
            case Wake.RUN:
                if (run := self.state.runs.get(RunId(alarm.about))) is not None:
                    self.touch_run(run)
            case Wake.INSTANCE:
                self.touch_instance(InstanceId(alarm.about))
            case Wake.RESYNC:
                self.touch_everything()
            case Wake.AVAILABILITY:
                present = self.state.active or self.state.membership.standing
                self.plan_wanted = self.plan_wanted or bool(present)
            case Wake.PROFILE:
                self._profile(RunId(alarm.about))
            case Wake.ROUND | Wake.PERIOD | Wake.AGAIN | Wake.FORGET | Wake.LATE:
                pass  # the end of the turn requests the plan that is wanted, and does the rest
            case _:
                assert_never(alarm.wake)

    def take_resync(self) -> bool:
        """Whether everything is to be looked at in this turn."""
        due, self._resync = self._resync, False
        return due

    def touched_job(self) -> tuple[JobId, Collection[RunId] | None] | None:
        """Take a job to converge, `None` if there is none left.

        Returns:
            The job, and the members of a gang that were touched if it was not touched as a whole.
        """
        name = next(iter(self._jobs), None)
        return None if name is None else (name, self._jobs.pop(name))

    def touched_run(self) -> RunId | None:
        """Take a task of an array to converge, `None` if there is none left."""
        return self._take(self._runs)

    def touched_instance(self) -> InstanceId | None:
        """Take an instance to converge, `None` if there is none left."""
        return self._take(self._instances)

    @staticmethod
    def _take(waiting: dict[_Name, None]) -> _Name | None:
        if not waiting:
            return None
        first = next(iter(waiting))
        del waiting[first]
        return first

    def _touch_place(self, instance: InstanceId) -> None:
        """Converge who waits for room on an instance; who is there waits for nothing."""
        for run in self.state.coming(instance):
            self.touch_run(run)

    # -- changing --------------------------------------------------------------------------------

    def arrived(self, job: Job) -> None:
        """Count a job that policies can see from now on."""
        self.state.count(arrivals=1)
        home = self.settings.partitions.home(job.partition)
        if not home.default:
            self.state.partition_tally.arrived(home.name)

    def left(self, job: Job) -> None:
        """Count a job that policies could see so far."""
        self.state.count(completions=1)
        home = self.settings.partitions.home(job.partition)
        if not home.default:
            self.state.partition_tally.left(home.name)

    def leaves_lenders(self, job: Job, *, succeeded: bool = False) -> None:
        """Have a policy that settles accounts told of a job that its partition has no more."""
        home = self.settings.partitions.home(job.partition).name
        if (
            home in self.settings.tenancy.lending
            and job.spec.tenant in self.settings.tenancy.quotas
        ):
            payments.note_end(self.state, job, home, self.now, succeeded=succeeded)

    def put_job(self, job: Job) -> None:
        """Replace the record of a job, learning from one that has ended."""
        old = self.state.jobs.get(job.id)
        if old is not None and job.state in TERMINAL_JOB and old.state not in TERMINAL_JOB:
            learn.from_job_end(self.state, job, self.now)
            payments.end(self.state, job.id, self.now)
            if job.state is JobState.SUCCEEDED:
                worths.book(self.state, job, self.now)
            self.leaves_lenders(job, succeeded=job.state is JobState.SUCCEEDED)
            self.shared_limits.forget(job.id)
        if old is not None and self.shared_limits.open and _leaves_queues(old, job):
            self.plan_wanted = True  # Others may have what was free for it.
        self.state.put_job(job)
        self.touch_job(job.id)
        for decided in self.state.dependencies.take_decided():
            self.touch_job(decided)
        self.plan_wanted |= self.state.dependencies.take_priority_change()

    def put_run(self, run: TaskRun) -> None:
        """Replace a task run, booking what its instances cost so far."""
        old = self.state.runs[run.id]
        before, after = old.state, run.state
        if before is not after or old.instance != run.instance:
            payments.book(self.state, run.job, self.now)
            for place in dict.fromkeys((old.instance, run.instance)):
                if place is not None:
                    ledger.book(self.state, place, self.now)
                    self.meters.restart(self.state, place)
            if before is RunState.RUNNING is not after:
                worked = worked_ms(self.state, old, self.now)
                had = attained.gpus(self.state, old) * max(0, self.now - old.history[-1][1])
                run = replace(run, work_ms=run.work_ms + worked, gpu_ms=run.gpu_ms + had)
            if after is RunState.WAITING:
                run = stored.rolled_back(self.state, run)
            run = self._timed(old, run)
            if before in HOLDING and after not in HOLDING:
                run = with_past_attempt(old, run, self.now)
        self.state.put_run(run)
        self.emptied.left_by(old, run)
        self.follow_waiting(run)
        if before is not after:
            self._measure(old, run)
        self.touch_run(run)
        settled = run.target == run.instance and old.target == run.target
        came = old.instance in (None, run.instance)
        for place in {run.instance: None, run.target: None, old.instance: None, old.target: None}:
            if place is None:
                continue
            self.standings.touch_instance(place)
            if place in self.emptied or not self.state.occupant_ids(place):
                self._instances[place] = None
            if not (settled and came):  # else it gives nobody room
                self._touch_place(place)

    def add_run(self, run: TaskRun) -> None:
        """Add an extra run of a task, which waits for room at its target."""
        assert run.target is not None
        self.state.put_run(run)
        self.follow_waiting(run)
        self.touch_run(run)
        self.standings.touch_instance(run.target)
        self.touch_instance(run.target)

    def follow_waiting(self, run: TaskRun) -> None:
        """Have lines follow whether a task waits: its own run, while no other is in hand."""
        for own in self.state.runs.others(run)[:1] if run.extra else (run,):
            covered = bool(own.replicas) and self.state.jobs[own.job].spec.forks == 1
            covered = covered and any(replica.in_hand for replica in self.state.runs.others(own))
            self.standings.follow(own, self.now, covered=covered)
        if run.extra:
            self.standings.count(run)

    def _timed(self, old: TaskRun | None, run: TaskRun) -> TaskRun:
        """The record of a task run with what it took, if that is known now or known no more."""
        paces, state = self.state.company, run.state
        over = state is RunState.SUCCEEDED
        if over and old is not None and old.state is not state:
            took = paces.took(run.id, run.work_ms)
            if self.state.jobs[run.job].spec.origins_of(run.index):
                took = 0  # An earlier job has done a part of its work.
            return run if self.settings.estimates is Estimates.OFF else replace(run, took_ms=took)
        anew = old is not None and 0 == run.work_ms < old.work_ms
        if old is not None and (anew or state in TERMINAL_RUN):
            paces.forget(run.id)
        return replace(run, took_ms=0) if run.took_ms and not over else run

    def _measure(self, old: TaskRun, run: TaskRun) -> None:
        """Have clocks and meters follow a task run into another state."""
        state = run.state
        if state is RunState.RUNNING:
            self.meters.began(run.id)
            self.watch(run)
        else:
            self.meters.ended(run.id)
            self.standstills.heard.pop(run.id, None)
        latency = self.latency_meters.changed(old, run, self.now)
        if latency is not None:
            learn.from_latency(self.state, run, latency, self.now)
        if state is RunState.SUCCEEDED:
            learn.from_end(self.state, run)
            if self.settings.profile and old.instance is not None:
                learn.from_silent_end(self.state, run, old.instance, self.now)

    def watch(self, run: TaskRun) -> None:
        """Look later at a task run that has begun to run: does it report steps, is it late?"""
        job = self.state.jobs[run.job]
        doubles = not job.is_gang and job.spec.stragglers is Stragglers.DUPLICATE
        if doubles and job.id not in self.looks_for_late:
            self.looks_for_late.add(job.id)
            self.alarms.at(Millis(self.now + LATE_LOOK_MS), Alarm.late(job.id))
        if self.settings.profile and learn.unprofiled(self.state, run):
            later = Millis(self.now + _SILENT_WINDOWS * self.settings.window_ms)
            self.alarms.at(later, Alarm.profile(run.id))

    def _profile(self, name: RunId) -> None:
        run = self.state.runs.get(name)
        since = Millis(self.now - _SILENT_WINDOWS * self.settings.window_ms)
        if run is not None and learn.from_silence(self.state, run, since, self.now):
            self.plan_wanted = True

    def put_instance(self, instance: Instance) -> None:
        """Replace the record of an instance."""
        self.state.put_instance(instance)
        self.emptied.follow(instance)
        self._instances[instance.id] = None
        self._touch_place(instance.id)
        for run in self.state.occupants(instance.id):
            self.touch_run(run)

    # -- task runs -------------------------------------------------------------------------------

    def stop(self, run: TaskRun, reason: StopReason) -> None:
        """Ask for a running attempt's stop, once."""
        if run.state in (RunState.STARTING, RunState.RUNNING):
            self.put_run(replace(run.to(RunState.STOPPING, self.now), stop=reason))

    def release(self, run: TaskRun, *, target: InstanceId | None, lost: bool = False) -> None:
        """Record the confirmed end of an attempt: its room is free, and the task run waits.

        Args:
            run: The task run.
            target: The instance where it continues, `None` if that has to be planned.
            lost: Whether its instance ended with it.
        """
        moved = run.stop is StopReason.MOVE
        self.put_run(
            replace(
                run.to(RunState.WAITING, self.now),
                instance=None,
                target=target,
                fetched=None,
                stop=None,
                moves=run.moves + moved,
                lost=run.attempt if lost else run.lost,
                pool="",
            )
        )
        if run.stop is StopReason.REPLICA:
            over = self.state.runs[run.id].to(RunState.CANCELLED, self.now)
            self.put_run(replace(over, target=None))
        if target is None or self._mate_without_place(run):
            self.plan_wanted = True

    def _mate_without_place(self, run: TaskRun) -> bool:
        """Whether another member of the gang waits for a plan; none was made while this stopped."""
        return self.state.jobs[run.job].is_gang and any(
            mate.state is RunState.WAITING and mate.target is None
            for mate in crew(self.state, run.job)
        )

    def retarget(self, run: TaskRun, target: InstanceId | None) -> None:
        """Change where a task run should be."""
        if run.target != target:
            self.outbox.forget_fetch(run)
            self.put_run(replace(run, target=target, fetched=None, pool=""))
            self.plan_wanted = self.plan_wanted or target is None

    def explain(self, run: TaskRun, reason: str) -> None:
        """Note why a task run waits; no change that calls for converging."""
        self.state.explain(run, reason)

    def abandon(self, instance: InstanceId) -> None:
        """Cancel all moves to an instance; task runs on their way stay where they are, or wait."""
        for run in self.state.targeting(instance):
            self.turn_back(run, instance)

    def turn_back(self, run: TaskRun, instance: InstanceId) -> None:
        """Have a task run stay where it is rather than go to an instance, or else wait.

        Its room may have been given to others, which now find none: the youngest of them, as many
        as have to, turn back too. So no task waits for a place that does not become free.
        """
        unsettled = [(run, instance)]
        while unsettled:
            run, instance = unsettled.pop()
            run = self.state.runs[run.id]
            if run.target != instance:
                continue  # The task run has turned back for another one.
            stays = run.instance if run.instance != instance else None
            if stays is None or not self.state.can_stay(stays) or self._starts_elsewhere(run):
                self.retarget(run, None)
                continue
            self.retarget(run, stays)
            unsettled += [(comer, stays) for comer in self.unwelcome(stays)]

    def unwelcome(self, place: InstanceId) -> list[TaskRun]:
        """Task runs headed for an instance without room for them, or with a job to be alone."""
        return self._without_room(place) + self._in_bad_company(place)

    def _in_bad_company(self, place: InstanceId) -> list[TaskRun]:
        """Task runs on the move that would join others though one of the jobs is to be alone.

        A waiting task run has to start somewhere, even beside others.
        """
        targeting = self.state.targeting(place)
        if not any(self.state.jobs[headed.job].buys.alone for headed in targeting):
            return []
        if len({headed.job for headed in targeting}) == 1:
            return []
        return [comer for comer in self.state.coming(place) if comer.state is RunState.RUNNING]

    def _starts_elsewhere(self, run: TaskRun) -> bool:
        """Whether it is stopping already on a spot instance that its job is to be kept off."""
        if run.state is not RunState.STOPPING or not self.state.jobs[run.job].buys.kept:
            return False
        assert run.instance is not None
        return self.state.instances[run.instance].offering.purchase is Purchase.SPOT

    def _without_room(self, place: InstanceId) -> list[TaskRun]:
        """The youngest of those who are to come to an instance that has no room for all."""
        instance, comers = self.state.instances[place], self.state.coming(place)
        comers.sort(key=lambda run: (self.state.jobs[run.job].submitted_ms, run.id))
        taken = self.state.demand(self.state.targeting(place), instance)
        out: list[TaskRun] = []
        while comers and not taken.fits(instance.offering.type.capacity):
            out.append(comers.pop())
            taken = taken - self.state.demand(out[-1:], instance)
        return out

    # -- instances -------------------------------------------------------------------------------

    def dismiss(self, instance: Instance, reason: str) -> None:
        """Terminate an instance that is not needed; an owned node gets no tasks any more."""
        if instance.owned:
            self.put_instance(replace(instance, drain=instance.drain or Drain(reason)))
            self.abandon(instance.id)
        elif instance.state in LIVE:
            going = instance.to(InstanceState.TERMINATING, self.now)
            self.put_instance(replace(going, reason=reason))
            self.abandon(instance.id)
