"""Orders of a turn to cloud and workers, repeated only if they showed no effect."""

from __future__ import annotations

from collections import defaultdict

from eva_master.control.alarms import Alarm, Alarms
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.actions import (
    Action,
    FetchFiles,
    ForgetTask,
    ForkOrder,
    Gang,
    LaunchInstance,
    StartTask,
    StopTask,
    TaskOrder,
    TerminateInstance,
)
from eva_master.model.records import Instance, Job, TaskRun
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId


class Outbox:
    """The actions of one turn, and when each command went out last.

    Not journalled: after a restart everything that still holds is said again.
    """

    def __init__(self, state: State, settings: Settings, alarms: Alarms) -> None:
        self._state = state
        self._settings = settings
        self._alarms = alarms
        self._now = Millis(0)
        self._actions: list[Action] = []
        self._sent: defaultdict[str, dict[tuple[str, ...], Millis]] = defaultdict(dict)

    def begin(self, now: Millis) -> None:
        """Begin a turn with no action yet."""
        self._now = now
        self._actions = []

    @property
    def actions(self) -> list[Action]:
        """The actions of this turn so far, in order."""
        return self._actions

    def add(self, action: Action) -> None:
        """Add an action that is never repeated."""
        self._actions.append(action)

    def due(self, to: InstanceId | JobId, command: tuple[str, ...], interval: int) -> bool:
        """Whether to send a command (again); if so it counts as sent now."""
        last = self._sent[to].get(command)
        if last is not None and self._now - last < interval:
            return False
        self._sent[to][command] = self._now
        return True

    def forget(self, to: InstanceId | JobId) -> None:
        """Let everything about an instance or a job be sent at once when it is next wanted."""
        self._sent.pop(to, None)

    # -- to workers ------------------------------------------------------------------------------

    def start(self, run: TaskRun) -> None:
        """Tell the worker to start the attempt that was written down."""
        assert run.instance is not None
        if self._due_to_worker("start", run.instance, run.id, str(run.attempt)):
            order = self._order(run, run.attempt, run.instance, starts=True)
            self._actions.append(StartTask(run.instance, order))

    def stop(self, run: TaskRun, grace_ms: int) -> None:
        """Tell the worker to stop the attempt."""
        assert run.instance is not None
        if self._due_to_worker("stop", run.instance, run.id, str(run.attempt)):
            self._actions.append(StopTask(run.instance, run.id, run.attempt, grace_ms))

    def forget_stop(self, run: TaskRun) -> None:
        """Let the stop of an attempt be told again at once, as when it has less time now."""
        if run.instance is not None:
            self._sent.get(run.instance, {}).pop(("stop", run.id, str(run.attempt)), None)

    def fetch(self, run: TaskRun) -> None:
        """Tell the target's worker to fetch what the next attempt needs."""
        assert run.target is not None
        if self._due_to_worker("fetch", run.target, run.id, str(run.attempt)):
            job = self._state.jobs[run.job]
            latest = run.attempt if job.spec.elastic.least is None else job.attempt
            order = self._order(run, latest + 1, run.target)
            self._actions.append(FetchFiles(run.target, order))

    def kill(self, instance: InstanceId, run: RunId, attempt: int, grace_ms: int = 0) -> None:
        """Tell a worker to stop something that nobody wants there."""
        self._actions.append(StopTask(instance, run, attempt, grace_ms))

    def forget_task(self, instance: InstanceId, run: RunId, attempt: int) -> None:
        """Tell a worker that an exit is written down; nothing is said of the attempt again."""
        said = self._sent.get(instance, {})
        for verb in ("start", "stop"):
            said.pop((verb, run, str(attempt)), None)
        self._actions.append(ForgetTask(instance, run, attempt))

    def _order(
        self, run: TaskRun, attempt: int, on: InstanceId, *, starts: bool = False
    ) -> TaskOrder:
        """Order for an attempt, before its start or for it."""
        job = self._state.jobs[run.job]
        task = job.spec.tasks[run.index]
        demand = self._state.instances[on].demand_of(task)
        assert demand is not None
        return TaskOrder(
            run=run.id,
            attempt=attempt,
            job=run.job,
            index=run.index,
            workload=task.workload,
            program=task.program,
            demand=demand,
            grace_period_ms=min(
                job.spec.restarts.grace_period_ms, self._settings.limits.grace_period_ms
            ),
            resume=run.resume if starts else None,
            checkpoint_of=run.checkpoint_of if starts else None,
            gang=self._gang(run) if starts else None,
            tasks=job.members,
            outputs_stored=job.spec.several_runs,
            fork=_fork_order(job, run),
            origins=() if run.extra else job.spec.origins_of(run.index),
            table="" if job.spec.array.table is None else job.spec.array.table.blob,
            secrets=job.spec.needed_secrets,
        )

    def _gang(self, run: TaskRun) -> Gang | None:
        job = self._state.jobs[run.job]
        if job.meeting is None:
            return None
        place = job.meeting
        return Gang(run.index, job.members, place.address, place.port, run.batch_ppm)

    def forget_fetch(self, run: TaskRun) -> None:
        """Let the fetch of a task run's files be ordered at once if it comes back to its target.

        The files fetched before are no longer known then.
        """
        if run.target is not None:
            said = self._sent.get(run.target, {})
            said.pop(("fetch", run.id, str(run.attempt)), None)

    # -- to the cloud ----------------------------------------------------------------------------

    def launch(self, instance: Instance) -> None:
        """Tell the cloud to launch an instance."""
        if self._due_to_cloud("launch", instance.id):
            existed = instance.up_ms is not None
            self._actions.append(LaunchInstance(instance.id, instance.offering, existed=existed))

    def terminate(self, instance: InstanceId) -> None:
        """Tell the cloud to terminate an instance."""
        if self._due_to_cloud("terminate", instance):
            self._actions.append(TerminateInstance(instance))

    def _due_to_worker(self, verb: str, instance: InstanceId, *what: str) -> bool:
        interval = self._settings.worker_resend_ms
        return instance in self._state.sessions and self._due(interval, verb, instance, *what)

    def _due_to_cloud(self, verb: str, instance: InstanceId) -> bool:
        return self._due(self._settings.cloud_resend_ms, verb, instance)

    def _due(self, interval: int, verb: str, instance: InstanceId, *what: str) -> bool:
        if not self.due(instance, (verb, *what), interval):
            return False
        self._alarms.at(Millis(self._now + interval), Alarm.instance(instance))
        return True


def _fork_order(job: Job, run: TaskRun) -> ForkOrder | None:
    spec = job.spec
    if not spec.forked:
        return None
    rule = spec.forking.merge
    return ForkOrder(
        run.replica, spec.forking.forks, rule.every_ms, rule.check, rule.larger, rule.patience_ms
    )
