"""A turn as features see it, and the protocol of a feature.

A feature remembers something from turn to turn, follows the records, and answers its own alarms. A
turn knows features by type alone (`Turn.memory`), and tells each of them what happens to records.
A feature can't change records when it is told of them: it remembers, has jobs and instances looked
at, sets alarms or asks for a plan. So the order in which features are told decides little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, ParamSpec, TypeVar

from eva_master.control.alarms import Alarm, Alarms, Wake
from eva_master.control.outbox import Outbox
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.control.turn.touched import Touched
from eva_master.model.feed import FeedEvent
from eva_master.model.fleet.partitions import Partition
from eva_master.model.planning.plan import Plan
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.records import Instance, Job, TaskRun
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId

_F = TypeVar("_F", bound="Feature")
_P = ParamSpec("_P")
_Methods = tuple[Callable[_P, None], ...]


@dataclass(frozen=True, slots=True)
class AdoptedPlan:
    """A plan whose places are in force.

    Attributes:
        partition: The partition whose policy made it.
        plan: The plan as the policy made it.
        shown: The cluster as the policy saw it.
    """

    partition: Partition
    plan: Plan
    shown: Snapshot


class Feature:
    """A feature with its memory, which is not journalled: a restart of the master forgets it.

    Attributes:
        wakes: Purposes of the alarms that `ring` answers.
    """

    wakes: ClassVar[frozenset[Wake]] = frozenset()

    def started(self, turn: Turn) -> None:
        """The master has started: its first turn begins, with the records of the journal."""

    def begin(self) -> None:
        """Forget, as a turn begins, what held for the last one alone."""

    def end(self, turn: Turn) -> None:
        """The turn is over: its records are as they will be written."""

    def ring(self, turn: Turn, alarm: Alarm) -> None:
        """One of the feature's alarms rings."""

    def job_ends(self, turn: Turn, job: Job) -> None:
        """A job is about to end: `job` becomes its last record."""

    def job_changed(self, turn: Turn, old: Job | None, job: Job) -> None:
        """The record of a job has been replaced, or added if there was no `old` one."""

    def run_changes(self, turn: Turn, old: TaskRun, run: TaskRun) -> None:
        """A task run is about to change its state or place: accounts are booked up to now."""

    def run_changed(self, turn: Turn, old: TaskRun | None, run: TaskRun) -> None:
        """The record of a task run has been replaced, or added if there was no `old` one."""

    def instance_changed(self, turn: Turn, old: Instance | None, instance: Instance) -> None:
        """The record of an instance has been replaced, or added if there was no `old` one."""

    def plan_adopted(self, turn: Turn, adopted: AdoptedPlan) -> None:
        """The places of a plan are in force."""


class Features:
    """The features of a control loop, each of another type.

    Features are told in their order. A method that a feature does not override costs nothing.

    Attributes:
        by_type: The features by their types.
        started, end, job_ends, job_changed, run_changes, run_changed, instance_changed,
            plan_adopted: The methods of the features that override them, in order; see `Feature`.
    """

    def __init__(self, features: Iterable[Feature]) -> None:
        self._features = tuple(features)
        self.by_type: Mapping[type, Feature] = {type(each): each for each in self._features}
        self._by_wake = {wake: feature for feature in self._features for wake in feature.wakes}
        self._begin: _Methods[[]] = self._overriding("begin")
        self.started: _Methods[[Turn]] = self._overriding("started")
        self.end: _Methods[[Turn]] = self._overriding("end")
        self.job_ends: _Methods[[Turn, Job]] = self._overriding("job_ends")
        self.job_changed: _Methods[[Turn, Job | None, Job]] = self._overriding("job_changed")
        self.run_changes: _Methods[[Turn, TaskRun, TaskRun]] = self._overriding("run_changes")
        self.run_changed: _Methods[[Turn, TaskRun | None, TaskRun]]
        self.run_changed = self._overriding("run_changed")
        self.instance_changed: _Methods[[Turn, Instance | None, Instance]]
        self.instance_changed = self._overriding("instance_changed")
        self.plan_adopted: _Methods[[Turn, AdoptedPlan]] = self._overriding("plan_adopted")

    def _overriding(self, name: str) -> tuple[Any, ...]:
        """The methods of a name, bound to the features that override the one of `Feature`."""
        return tuple(
            getattr(feature, name)
            for feature in self._features
            if getattr(type(feature), name) is not getattr(Feature, name)
        )

    def begin(self) -> None:
        """Have features begin a turn."""
        for begin in self._begin:
            begin()

    def ring(self, turn: Turn, alarm: Alarm) -> None:
        """Have the feature answer whose alarm rings."""
        self._by_wake[alarm.wake].ring(turn, alarm)


class Turn:
    """A turn of the control loop, beside the journalled state.

    Args:
        state: The journalled state.
        settings: Delays and limits.
        features: The features, see `features.installed`.

    Attributes:
        now: The time of the turn.
        touched: Jobs, task runs and instances to converge.
        outbox: Actions of the turn. alarms: Later wake-ups.
        news: Events for users that no record tells; the feed of events takes them.
        plan_wanted: Whether partitions are to plan at the end of the turn.
        closing_down: Whether the cluster ends.
    """

    def __init__(self, state: State, settings: Settings, features: Features) -> None:
        self.state, self.settings, self.features = state, settings, features
        self._by_type = features.by_type
        self.alarms = Alarms()
        self.outbox = Outbox(state, settings, self.alarms)
        self.touched = Touched()
        self.now = Millis(0)
        self.news: list[FeedEvent] = []
        self.plan_wanted = self.closing_down = False

    def memory(self, kind: type[_F]) -> _F:
        """The feature of a type, with what it remembers."""
        return self._by_type[kind]  # type: ignore[return-value]  # by their types

    def begin(self, now: Millis) -> None:
        """Begin a turn; time never goes back from one turn to the next."""
        self.now = Millis(max(now, self.now))
        self.news.clear()
        self.features.begin()
        self.touched.begin()
        self.outbox.begin(self.now)

    # -- touching --------------------------------------------------------------------------------

    def touch_job(self, job: JobId) -> None:
        """Have a job converged in this turn, with all of its tasks."""
        self.touched.job(job)

    def touch_run(self, run: TaskRun) -> None:
        """Have a task converged in this turn: with its gang, or by itself."""
        if self.state.jobs[run.job].is_gang:
            self.touched.member(run)
        else:
            self.touched.run(run.id)

    def touch_instance(self, instance: InstanceId) -> None:
        """Have an instance converged in this turn."""
        self.touched.instance(instance)

    def touch_everything(self) -> None:
        """Have every job and instance converged in this turn, and compared with the world."""
        self.touched.resync = True

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
            case Wake.ROUND | Wake.PERIOD | Wake.AGAIN | Wake.FORGET:
                pass  # the end of the turn requests the plan that is wanted, and does the rest
            case _:
                self.features.ring(self, alarm)
