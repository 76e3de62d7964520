"""Memory of jobs with a cap on their cost, and when each of them comes to it."""

from __future__ import annotations

from eva_master.control.alarms import Alarm, SpendingWatch, Wake
from eva_master.control.features.capping.spending import spending
from eva_master.control.turn.turn import Feature, Turn
from eva_master.model.records import Instance, Job, TaskRun
from eva_wire.values.ids import InstanceId, JobId, Millis
from eva_wire.values.states import TERMINAL_JOB


class CappingMemory(Feature):
    """Watches what jobs with a cap are charged: each change of a place or a price counts anew.

    Shares of an instance shift as speeds are measured too, so a far moment is looked at on the way.

    Attributes:
        reached: Jobs that are to stop now.
        told: Jobs of whose cap most is spent.
    """

    wakes = frozenset({Wake.CAP})

    def __init__(self) -> None:
        self._watched: dict[JobId, SpendingWatch] = {}
        """Jobs with a cap that have not ended."""
        self.reached: set[JobId] = set()
        self.told: set[JobId] = set()

    def started(self, turn: Turn) -> None:
        """Count what the jobs of the journal have spent."""
        for job in turn.state.active:
            self.job_changed(turn, None, turn.state.jobs[job])

    def job_changed(self, turn: Turn, old: Job | None, job: Job) -> None:
        """Follow a job that has a cap, or is given another one."""
        if job.max_cost is None:
            return
        if job.state in TERMINAL_JOB:
            self._watched.pop(job.id, None)
            self.reached.discard(job.id)
            self.told.discard(job.id)
        elif old is None or old.max_cost != job.max_cost:
            watch = self._watched.setdefault(job.id, SpendingWatch(Alarm(Wake.CAP, job.id)))
            watch.look(turn.alarms, turn.now)

    def run_changed(self, turn: Turn, old: TaskRun | None, run: TaskRun) -> None:
        """Count anew for all that share an instance which a task run comes to or leaves."""
        place = None if old is None else old.instance
        if self._watched and place != run.instance:
            if run.job in self._watched:
                self._watched[run.job].look(turn.alarms, turn.now)
            self._look_on(turn, place)
            self._look_on(turn, run.instance)

    def instance_changed(self, turn: Turn, old: Instance | None, instance: Instance) -> None:
        """Count anew for all on an instance that is billed from now on, or at another price."""
        if old is None or not self._watched:
            return
        if (old.up_ms, old.offering.price) != (instance.up_ms, instance.offering.price):
            self._look_on(turn, instance.id)

    def ring(self, turn: Turn, alarm: Alarm) -> None:
        """Work out when a job comes to its cap; have it converged if that is now."""
        job = turn.state.jobs.get(JobId(alarm.about))
        watch = self._watched.get(JobId(alarm.about))
        if job is None or watch is None or not watch.rings(turn.now):
            return
        counted = spending(turn.state, turn.settings, job, turn.now)
        if counted is None:
            return
        watch.free_ms = Millis(turn.now + counted.blind_ms)
        if counted.stop_ms is not None and counted.stop_ms <= turn.now:
            self.reached.add(job.id)
            turn.touch_job(job.id)
            return
        if counted.told_ms is not None and counted.told_ms <= turn.now and not job.cap_told:
            self.told.add(job.id)
            turn.touch_job(job.id)
        for at_ms in (counted.told_ms, counted.stop_ms):
            if at_ms is not None and at_ms > turn.now:
                watch.foresee(turn.alarms, turn.now, at_ms)

    def _look_on(self, turn: Turn, place: InstanceId | None) -> None:
        if place is not None:
            for job in turn.state.company.jobs_on(place):
                if job in self._watched:
                    self._watched[job].look(turn.alarms, turn.now)
