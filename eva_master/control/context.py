"""One turn of the machine: what it works on, what it has touched, what it wants done."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from typing import TypeVar

from eva_master.control.measure import learn, ledger
from eva_master.control.measure.delays import Stopwatches
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
from eva_master.model.ids import CopyId, InstanceId, JobId, Millis, OfferingId
from eva_master.model.job import JobKind
from eva_master.model.records import Instance, Job, StopReason, TaskCopy
from eva_master.model.states import LIVE, CopyState, InstanceState
from eva_master.model.values import replace

_Name = TypeVar("_Name", JobId, InstanceId)

Entity = tuple[str, str]
"""What an alarm wakes: ("job" | "instance", id), ("sweep" | "period" | "stock" | "round", ""),
("profile", id of a copy)."""

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


class Turn:
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
        self.stopwatches = Stopwatches()
        self.now = Millis(0)
        self.actions: list[Action] = []
        self.plan_wanted = False
        self.silent: dict[InstanceId, Millis] = {}
        """Since when a ready instance's worker has had no session."""
        self.unwanted: dict[InstanceId, Millis] = {}
        """Since when the cloud has been listing an instance that nobody asked for."""
        self.stillborn: Counter[OfferingId] = Counter()
        """How many instances of an offering in a row never had a worker."""
        self.asked: dict[JobId, int] = {}
        """The number of the question about a gang's checkpoints that has no answer yet."""
        self.listed: dict[JobId, CheckpointsListed] = {}
        """What is stored of gangs that are at rest."""
        self._jobs: dict[JobId, None] = {}
        self._instances: dict[InstanceId, None] = {}
        self._sweep = False

    # -- touching --------------------------------------------------------------------------------

    def touch(self, entity: Entity) -> None:
        """Have an entity settled in this turn."""
        kind, name = entity
        match kind:
            case "job":
                self._jobs[JobId(name)] = None
            case "instance":
                self._instances[InstanceId(name)] = None
            case "sweep":
                self._sweep = True
            case "period" | "stock":
                self.plan_wanted = self.plan_wanted or bool(self.state.active)
            case "profile":
                self._profile(CopyId(name))
            case _:
                pass  # woken merely to be asked for a plan that is wanted already

    def take_sweep(self) -> bool:
        """Whether everything is to be looked at in this turn."""
        due, self._sweep = self._sweep, False
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
            for copy in self.state.aimed(instance):
                if copy.instance != instance or copy.state is not CopyState.RUNNING:
                    self._jobs[copy.job] = None

    # -- changing --------------------------------------------------------------------------------

    def put_job(self, job: Job) -> None:
        """Replace a job."""
        self.state.put_job(job)
        self.touch(("job", job.id))

    def put_copy(self, copy: TaskCopy) -> None:
        """Replace a copy, booking what its instances cost so far."""
        old = self.state.copies.get(copy.id)
        before = None if old is None else (old.instance, old.state)
        if before != (copy.instance, copy.state):
            for place in dict.fromkeys((before[0] if before else None, copy.instance)):
                if place is not None:
                    ledger.book(self.state, place, self.now)
                    self.meters.restart(self.state, place)
        self.state.put_copy(copy)
        if old is not None and old.state is not copy.state:
            self._measure(old, copy)
        self.touch(("job", copy.job))
        before_that = (old.instance, old.target) if old else ()
        for place in dict.fromkeys((copy.instance, copy.target, *before_that)):
            self._touch_place(place)

    def _measure(self, old: TaskCopy, copy: TaskCopy) -> None:
        """Have clocks and meters follow a copy into another state."""
        if copy.state is CopyState.RUNNING:
            self.meters.began(copy.id)
            self.watch(copy)
        else:
            self.meters.ended(copy.id)
        lap = self.stopwatches.changed(old, copy, self.now)
        if lap is not None:
            learn.from_lap(self.state, copy, lap, self.now)

    def watch(self, copy: TaskCopy) -> None:
        """Look at a copy that has begun to run again later: does it report steps?"""
        if self.settings.profile and learn.unprofiled(self.state, copy):
            later = Millis(self.now + _PATIENCE * self.settings.window_ms)
            self.alarms.at(later, ("profile", copy.id))

    def _profile(self, name: CopyId) -> None:
        copy = self.state.copies.get(name)
        since = Millis(self.now - _PATIENCE * self.settings.window_ms)
        if copy is not None and learn.from_silence(self.state, copy, since, self.now):
            self.plan_wanted = True

    def put_instance(self, instance: Instance) -> None:
        """Replace an instance."""
        self.state.put_instance(instance)
        self._touch_place(instance.id)
        for copy in self.state.holders(instance.id):
            self.touch(("job", copy.job))

    # -- copies ----------------------------------------------------------------------------------

    def stop(self, copy: TaskCopy, reason: StopReason) -> None:
        """Ask for a running attempt's stop, once."""
        if copy.state in (CopyState.STARTING, CopyState.RUNNING):
            self.put_copy(replace(copy.to(CopyState.STOPPING, self.now), stop=reason))

    def release(self, copy: TaskCopy, *, target: InstanceId | None, lost: bool = False) -> None:
        """The attempt is over and confirmed so: its room is free, the copy waits.

        Args:
            copy: Whose.
            target: Where it is to go on, `None` if that has to be planned.
            lost: Whether its instance took it along.
        """
        moved = copy.stop is StopReason.MOVE
        self.put_copy(
            replace(
                copy.to(CopyState.WAITING, self.now),
                instance=None,
                target=target,
                fetched=None,
                stop=None,
                moves=copy.moves + moved,
                lost=copy.attempt if lost else copy.lost,
            )
        )
        if target is None or self._mate_without_place(copy):
            self.plan_wanted = True

    def _mate_without_place(self, copy: TaskCopy) -> bool:
        """Whether another member of the gang waits for a plan; none was made while this stopped."""
        return self.state.jobs[copy.job].spec.kind is JobKind.GANG and any(
            mate.state is CopyState.WAITING and mate.target is None
            for mate in self.state.members(copy.job)
        )

    def retarget(self, copy: TaskCopy, target: InstanceId | None) -> None:
        """Change where a copy should be."""
        if copy.target != target:
            self.put_copy(replace(copy, target=target, fetched=None))
            self.plan_wanted = self.plan_wanted or target is None

    def explain(self, copy: TaskCopy, reason: str) -> None:
        """Note why a copy waits; not a change that calls for settling."""
        self.state.put_copy(replace(copy, waiting_for=reason))

    def abandon(self, instance: InstanceId) -> None:
        """Nobody shall be on this instance any more: who was on the way there stays or waits."""
        for copy in self.state.aimed(instance):
            stay = copy.instance if copy.instance != instance else None
            keep = stay is not None and self.state.tenable(stay)
            self.retarget(copy, stay if keep else None)

    # -- instances -------------------------------------------------------------------------------

    def dismiss(self, instance: Instance, reason: str) -> None:
        """Give an instance back."""
        if instance.state in LIVE:
            going = instance.to(InstanceState.TERMINATING, self.now)
            self.put_instance(replace(going, reason=reason))
            self.abandon(instance.id)

    # -- commands --------------------------------------------------------------------------------

    def order(self, copy: TaskCopy, attempt: int, on: InstanceId) -> TaskOrder:
        """What a worker must know of an attempt before it starts."""
        job = self.state.jobs[copy.job]
        task = job.spec.tasks[copy.index]
        demand = self.state.instances[on].demand_of(task)
        assert demand is not None
        return TaskOrder(
            copy=copy.id,
            attempt=attempt,
            job=copy.job,
            index=copy.index,
            workload=task.workload,
            program=task.program,
            demand=demand,
            grace_period_ms=job.spec.grace_period_ms,
        )

    def send_start(self, copy: TaskCopy) -> None:
        """Tell the worker to start the attempt that was written down."""
        assert copy.instance is not None
        if self._due_to_worker("start", copy.instance, copy.id, str(copy.attempt)):
            order = replace(
                self.order(copy, copy.attempt, copy.instance),
                resume=copy.resume,
                checkpoint_of=copy.checkpoint_of,
                gang=self._gang(copy),
            )
            self.actions.append(StartTask(copy.instance, order))

    def _gang(self, copy: TaskCopy) -> Gang | None:
        job = self.state.jobs[copy.job]
        if job.meeting is None:
            return None
        return Gang(copy.index, len(job.spec.tasks), job.meeting.address, job.meeting.port)

    def send_stop(self, copy: TaskCopy, grace_ms: int) -> None:
        """Tell the worker to stop the attempt."""
        assert copy.instance is not None
        if self._due_to_worker("stop", copy.instance, copy.id, str(copy.attempt)):
            self.actions.append(StopTask(copy.instance, copy.id, copy.attempt, grace_ms))

    def send_fetch(self, copy: TaskCopy) -> None:
        """Tell the target's worker to fetch what the next attempt needs."""
        assert copy.target is not None
        if self._due_to_worker("fetch", copy.target, copy.id, str(copy.attempt)):
            order = self.order(copy, copy.attempt + 1, copy.target)
            self.actions.append(FetchFiles(copy.target, order))

    def send_kill(self, instance: InstanceId, copy: CopyId, attempt: int) -> None:
        """Tell a worker to stop something that nobody wants there."""
        self.actions.append(StopTask(instance, copy, attempt, 0))

    def send_forget(self, instance: InstanceId, copy: CopyId, attempt: int) -> None:
        """Tell a worker that an exit is written down."""
        self.actions.append(ForgetTask(instance, copy, attempt))

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
            copies = tuple(copy.id for copy in self.state.members(job.id))
            self.actions.append(ListCheckpoints(number, job.id, copies, job.resume))

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
