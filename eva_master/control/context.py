"""One turn of the machine: what it works on, what it has touched, what it wants done."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from typing import TypeVar

from eva_master.control.measure import learn, ledger
from eva_master.control.measure.delays import LatencyMeters
from eva_master.control.measure.throughput import Meters
from eva_master.control.settings import NEVER_MS, Settings
from eva_master.control.state.store import State
from eva_master.model.actions import (
    Action,
    FetchFiles,
    ForgetTask,
    Gang,
    LaunchInstance,
    ListCheckpoints,
    StartTask,
    StopTask,
    TaskOrder,
    TerminateInstance,
)
from eva_master.model.events import CheckpointsListed
from eva_master.model.ids import InstanceId, JobId, Millis, OfferingId, RunId
from eva_master.model.job import JobKind
from eva_master.model.records import Instance, Job, StopReason, TaskRun
from eva_master.model.states import LIVE, InstanceState, RunState
from eva_master.model.values import replace

_Name = TypeVar("_Name", JobId, InstanceId)

Entity = tuple[str, str]
"""What an alarm wakes: ("job" | "instance", id), ("resync" | "period" | "stock" | "round", ""),
("profile", id of a task run)."""

_PATIENCE = 3
"""A task that has reported no step for so many windows is held to report none, ever."""


class Outbox:
    """Which commands went out when, so that only what shows no effect is repeated.

    Not journalled: after a restart everything that still holds is said again.
    """

    def __init__(self) -> None:
        self._sent: defaultdict[str, dict[tuple[str, ...], Millis]] = defaultdict(dict)

    def due(
        self, to: InstanceId | JobId, command: tuple[str, ...], now: Millis, interval: int
    ) -> bool:
        """Whether to send (again); if so the command counts as sent."""
        last = self._sent[to].get(command)
        if last is not None and now - last < interval:
            return False
        self._sent[to][command] = now
        return True

    def forget(self, to: InstanceId | JobId) -> None:
        """Let everything about an entity be sent at once when it is next wanted."""
        self._sent.pop(to, None)


class Alarms:
    """Entities to look at again at a certain time."""

    def __init__(self) -> None:
        self._heap: list[tuple[Millis, Entity]] = []
        self._set: set[tuple[Millis, Entity]] = set()

    def at(self, when: Millis, entity: Entity) -> None:
        """Have an entity looked at; what would never be is not kept."""
        if when < NEVER_MS and (when, entity) not in self._set:
            self._set.add((when, entity))
            heapq.heappush(self._heap, (when, entity))

    def next(self) -> Millis | None:
        """When the next one rings."""
        return self._heap[0][0] if self._heap else None

    def ring(self, now: Millis) -> list[Entity]:
        """Take those whose time has come."""
        ringing = []
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            self._set.discard(entry)
            ringing.append(entry[1])
        return ringing


class Context:
    """The context in which events are applied and entities settled.

    Every change of a record goes through here, so that accounts are booked before who is where
    changes, and whatever may now have something to do is looked at.
    """

    def __init__(
        self, state: State, settings: Settings, outbox: Outbox, alarms: Alarms, meters: Meters
    ) -> None:
        self.state = state
        self.settings = settings
        self.outbox = outbox
        self.alarms = alarms
        self.meters = meters
        self.latency_meters = LatencyMeters()
        self.now = Millis(0)
        self.actions: list[Action] = []
        self.plan_wanted = False
        self.silent: dict[InstanceId, Millis] = {}
        """Since when a ready instance's worker has had no session."""
        self.unwanted: dict[InstanceId, Millis] = {}
        """Since when the cloud has been listing an instance that nobody asked for."""
        self.never_registered: Counter[OfferingId] = Counter()
        """How many instances of an offering in a row never had a worker."""
        self.asked: dict[JobId, int] = {}
        """The number of the question about a gang's checkpoints that has no answer yet."""
        self.listed: dict[JobId, CheckpointsListed] = {}
        """What is stored of gangs that are at rest."""
        self._jobs: dict[JobId, None] = {}
        self._instances: dict[InstanceId, None] = {}
        self._resync = False

    # -- touching --------------------------------------------------------------------------------

    def touch(self, entity: Entity) -> None:
        """Have an entity settled in this turn."""
        kind, name = entity
        match kind:
            case "job":
                self._jobs[JobId(name)] = None
            case "instance":
                self._instances[InstanceId(name)] = None
            case "resync":
                self._resync = True
            case "period" | "stock":
                self.plan_wanted = self.plan_wanted or bool(self.state.active)
            case "profile":
                self._profile(RunId(name))
            case _:
                pass  # woken merely to be asked for a plan that is wanted already

    def take_resync(self) -> bool:
        """Whether everything is to be looked at in this turn."""
        due, self._resync = self._resync, False
        return due

    def touched_job(self) -> JobId | None:
        """Take a job to settle."""
        return self._take(self._jobs)

    def touched_instance(self) -> InstanceId | None:
        """Take an instance to settle."""
        return self._take(self._instances)

    @staticmethod
    def _take(waiting: dict[_Name, None]) -> _Name | None:
        first = next(iter(waiting), None)
        if first is not None:
            del waiting[first]
        return first

    def _touch_place(self, instance: InstanceId | None) -> None:
        """Settle an instance, and who waits for room on it; who runs there waits for nothing."""
        if instance is not None:
            self._instances[instance] = None
            for run in self.state.targeting(instance):
                if run.instance != instance or run.state is not RunState.RUNNING:
                    self._jobs[run.job] = None

    # -- changing --------------------------------------------------------------------------------

    def put_job(self, job: Job) -> None:
        """Replace a job."""
        self.state.put_job(job)
        self.touch(("job", job.id))

    def put_run(self, run: TaskRun) -> None:
        """Replace a task run, booking what its instances cost so far."""
        old = self.state.runs.get(run.id)
        before = None if old is None else (old.instance, old.state)
        if before != (run.instance, run.state):
            for place in dict.fromkeys((before[0] if before else None, run.instance)):
                if place is not None:
                    ledger.book(self.state, place, self.now)
                    self.meters.restart(self.state, place)
        self.state.put_run(run)
        if old is not None and old.state is not run.state:
            self._measure(old, run)
        self.touch(("job", run.job))
        before_that = (old.instance, old.target) if old else ()
        for place in dict.fromkeys((run.instance, run.target, *before_that)):
            self._touch_place(place)

    def _measure(self, old: TaskRun, run: TaskRun) -> None:
        """Have clocks and meters follow a task run into another state."""
        if run.state is RunState.RUNNING:
            self.meters.began(run.id)
            self.watch(run)
        else:
            self.meters.ended(run.id)
        latency = self.latency_meters.changed(old, run, self.now)
        if latency is not None:
            learn.from_latency(self.state, run, latency, self.now)

    def watch(self, run: TaskRun) -> None:
        """Look at a task run that has begun to run again later: does it report steps?"""
        if self.settings.profile and learn.unprofiled(self.state, run):
            later = Millis(self.now + _PATIENCE * self.settings.window_ms)
            self.alarms.at(later, ("profile", run.id))

    def _profile(self, name: RunId) -> None:
        run = self.state.runs.get(name)
        since = Millis(self.now - _PATIENCE * self.settings.window_ms)
        if run is not None and learn.from_silence(self.state, run, since, self.now):
            self.plan_wanted = True

    def put_instance(self, instance: Instance) -> None:
        """Replace an instance."""
        self.state.put_instance(instance)
        self._touch_place(instance.id)
        for run in self.state.occupants(instance.id):
            self.touch(("job", run.job))

    # -- task runs
    # ----------------------------------------------------------------------------------

    def stop(self, run: TaskRun, reason: StopReason) -> None:
        """Ask for a running attempt's stop, once."""
        if run.state in (RunState.STARTING, RunState.RUNNING):
            self.put_run(replace(run.to(RunState.STOPPING, self.now), stop=reason))

    def release(self, run: TaskRun, *, target: InstanceId | None, lost: bool = False) -> None:
        """The attempt is over and confirmed so: its room is free, the task run waits.

        Args:
            run: Whose.
            target: Where it is to go on, `None` if that has to be planned.
            lost: Whether its instance took it along.
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
            )
        )
        if target is None or self._mate_without_place(run):
            self.plan_wanted = True

    def _mate_without_place(self, run: TaskRun) -> bool:
        """Whether another member of the gang waits for a plan; none was made while this stopped."""
        return self.state.jobs[run.job].spec.kind is JobKind.GANG and any(
            mate.state is RunState.WAITING and mate.target is None
            for mate in self.state.members(run.job)
        )

    def retarget(self, run: TaskRun, target: InstanceId | None) -> None:
        """Change where a task run should be."""
        if run.target != target:
            self.put_run(replace(run, target=target, fetched=None))
            self.plan_wanted = self.plan_wanted or target is None

    def explain(self, run: TaskRun, reason: str) -> None:
        """Note why a task run waits; not a change that calls for settling."""
        self.state.put_run(replace(run, waiting_for=reason))

    def abandon(self, instance: InstanceId) -> None:
        """Nobody shall be on this instance any more: who was on the way there stays or waits."""
        for run in self.state.targeting(instance):
            occupancy = run.instance if run.instance != instance else None
            keep = occupancy is not None and self.state.can_stay(occupancy)
            self.retarget(run, occupancy if keep else None)

    # -- instances -------------------------------------------------------------------------------

    def dismiss(self, instance: Instance, reason: str) -> None:
        """Give an instance back."""
        if instance.state in LIVE:
            going = instance.to(InstanceState.TERMINATING, self.now)
            self.put_instance(replace(going, reason=reason))
            self.abandon(instance.id)

    # -- commands --------------------------------------------------------------------------------

    def order(self, run: TaskRun, attempt: int, on: InstanceId) -> TaskOrder:
        """What a worker must know of an attempt before it starts."""
        job = self.state.jobs[run.job]
        task = job.spec.tasks[run.index]
        demand = self.state.instances[on].demand_of(task)
        assert demand is not None
        return TaskOrder(
            run=run.id,
            attempt=attempt,
            job=run.job,
            index=run.index,
            workload=task.workload,
            program=task.program,
            demand=demand,
            grace_period_ms=job.spec.grace_period_ms,
        )

    def send_start(self, run: TaskRun) -> None:
        """Tell the worker to start the attempt that was written down."""
        assert run.instance is not None
        if self._due_to_worker("start", run.instance, run.id, str(run.attempt)):
            order = replace(
                self.order(run, run.attempt, run.instance),
                resume=run.resume,
                checkpoint_of=run.checkpoint_of,
                gang=self._gang(run),
            )
            self.actions.append(StartTask(run.instance, order))

    def _gang(self, run: TaskRun) -> Gang | None:
        job = self.state.jobs[run.job]
        if job.meeting is None:
            return None
        return Gang(run.index, len(job.spec.tasks), job.meeting.address, job.meeting.port)

    def send_stop(self, run: TaskRun, grace_ms: int) -> None:
        """Tell the worker to stop the attempt."""
        assert run.instance is not None
        if self._due_to_worker("stop", run.instance, run.id, str(run.attempt)):
            self.actions.append(StopTask(run.instance, run.id, run.attempt, grace_ms))

    def send_fetch(self, run: TaskRun) -> None:
        """Tell the target's worker to fetch what the next attempt needs."""
        assert run.target is not None
        if self._due_to_worker("fetch", run.target, run.id, str(run.attempt)):
            order = self.order(run, run.attempt + 1, run.target)
            self.actions.append(FetchFiles(run.target, order))

    def send_kill(self, instance: InstanceId, run: RunId, attempt: int) -> None:
        """Tell a worker to stop something that nobody wants there."""
        self.actions.append(StopTask(instance, run, attempt, 0))

    def send_forget(self, instance: InstanceId, run: RunId, attempt: int) -> None:
        """Tell a worker that an exit is written down."""
        self.actions.append(ForgetTask(instance, run, attempt))

    def send_launch(self, instance: Instance) -> None:
        """Tell the cloud to launch."""
        if self._due_to_cloud("launch", instance.id):
            attempt = instance.launch_attempt
            existed = instance.up_ms is not None
            self.actions.append(LaunchInstance(instance.id, instance.offering, attempt, existed))

    def send_terminate(self, instance: InstanceId) -> None:
        """Tell the cloud to terminate."""
        if self._due_to_cloud("terminate", instance):
            self.actions.append(TerminateInstance(instance))

    def send_list(self, job: Job) -> None:
        """Ask what the object store holds of a job's checkpoints, once what is given up is gone.

        One question at a time: one that was still being carried out when the next attempt stores
        its first checkpoint might remove that.
        """
        interval = self.settings.worker_resend_ms
        command = ("list", str(job.resume))
        if job.id not in self.asked and self.outbox.due(job.id, command, self.now, interval):
            number = self.asked[job.id] = self.state.count(listings=1).listings
            runs = tuple(run.id for run in self.state.members(job.id))
            self.actions.append(ListCheckpoints(number, job.id, runs, job.resume))

    def forget_list(self, job: JobId) -> None:
        """What was said of a job's checkpoints is no longer true."""
        self.asked.pop(job, None)
        self.listed.pop(job, None)
        self.outbox.forget(job)

    def _due_to_worker(self, verb: str, instance: InstanceId, *what: str) -> bool:
        interval = self.settings.worker_resend_ms
        return self.state.connected(instance) and self._due(interval, verb, instance, *what)

    def _due_to_cloud(self, verb: str, instance: InstanceId) -> bool:
        return self._due(self.settings.cloud_resend_ms, verb, instance)

    def _due(self, interval: int, verb: str, instance: InstanceId, *what: str) -> bool:
        if not self.outbox.due(instance, (verb, *what), self.now, interval):
            return False
        again = Millis(self.now + interval)
        self.alarms.at(again, ("instance", instance))
        return True
