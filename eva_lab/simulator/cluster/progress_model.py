"""How fast tasks progress: families, interference, and gangs at their slowest member's pace.

Members of a gang that divides batches by speed do their own part of each step: what one takes for
its part is what the others wait for.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from eva_lab.simulator.cluster.clock import Timeline
from eva_lab.simulator.cluster.truth import SizeSpeed, Truth, remembered
from eva_lab.simulator.cluster.work import SimulatedAttempt
from eva_wire.values.ids import MILLION, InstanceId, JobId, RunId, Workload


@dataclass(slots=True, eq=False)
class Crew:
    """Attempts that progress together: a gang's, or a single one.

    Attributes:
        size: Number of attempts once all have started.
        running: Attempts whose program runs and was not told to stop.
        begun: Attempts whose program ever ran.
        moving: Whether all have started and are initialised.
    """

    size: int
    running: dict[RunId, SimulatedAttempt] = field(default_factory=dict)
    begun: set[RunId] = field(default_factory=set)
    moving: bool = False


class TaskSets:
    """The workloads that run on each instance, and how fast each of them is in their company.

    Args:
        truth: How much tasks slow each other down.
    """

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._sorted: dict[InstanceId, list[Workload]] = {}
        self._speeds: dict[InstanceId, dict[Workload, float]] = {}
        """Speeds that were asked for since the instance's tasks changed."""

    def add(self, instance: InstanceId, workload: Workload) -> bool:
        """A task has come to an instance; returns whether any that was there has another speed."""
        insort(self._sorted.setdefault(instance, []), workload)
        return self._changed(instance)

    def remove(self, instance: InstanceId, workload: Workload) -> bool:
        """A task that was there has left; returns whether any that stays has another speed."""
        workloads = self._sorted[instance]
        del workloads[bisect_left(workloads, workload)]
        if workloads:
            return self._changed(instance)
        self._speeds.pop(instance, None)
        del self._sorted[instance]
        return False

    def _changed(self, instance: InstanceId) -> bool:
        """Forget what was asked for; returns whether it would be told otherwise now."""
        workloads, before = self._sorted[instance], self._speeds.pop(instance, {})
        stay = ((workload, speed) for workload, speed in before.items() if workload in workloads)
        return any(self.speed(instance, workload) != speed for workload, speed in stay)

    def speed(self, instance: InstanceId, workload: Workload) -> float:
        """How fast one that is there runs beside the others."""
        speeds = self._speeds.setdefault(instance, {})
        speed = speeds.get(workload)
        if speed is None:
            others = self._sorted[instance].copy()
            del others[bisect_left(others, workload)]
            speed = speeds[workload] = self._truth(workload, tuple(others))
        return speed


class ProgressModel:
    """The progress of all running tasks.

    Args:
        timeline: The virtual time.
        truth: How much tasks slow each other down.
        finish: Called when an attempt has done its work.
        changed: Called with the attempts on an instance that progress and whose speed or co-located
            tasks have changed.
        size_speed: How fast gangs are by their number of members and by whether these are on
            several instances.
    """

    def __init__(
        self,
        timeline: Timeline,
        truth: Truth,
        *,
        finish: Callable[[SimulatedAttempt], None],
        changed: Callable[[InstanceId, Sequence[SimulatedAttempt]], None],
        size_speed: SizeSpeed | None = None,
    ) -> None:
        self._timeline = timeline
        self._task_sets = TaskSets(remembered(truth))
        self._finish = finish
        self._changed = changed
        self._size_speed = size_speed
        self._residents: dict[InstanceId, dict[RunId, SimulatedAttempt]] = {}
        self._crews: dict[tuple[JobId | RunId, int], Crew] = {}

    def begin(self, attempt: SimulatedAttempt, init_ms: int) -> None:
        """Start the progress of an attempt's program.

        Args:
            attempt: The attempt.
            init_ms: Time from the start of the last of its crew to first progress.
        """
        order = attempt.order
        attempt.at_ms = self._timeline.now()
        self._residents.setdefault(attempt.instance, {})[order.run] = attempt
        news = self._task_sets.add(attempt.instance, Workload(order.workload))
        size = 1 if order.gang is None else order.gang.size
        crew = self._crews.setdefault(attempt.crew, Crew(size))
        crew.running[order.run] = attempt
        crew.begun.add(order.run)
        if crew.moving:
            attempt.together_ms = attempt.at_ms
        elif len(crew.begun) == crew.size:
            for member in crew.running.values():
                member.together_ms = attempt.at_ms
            if init_ms > 0:
                self._timeline.after(init_ms, lambda: self._go(crew))
            else:
                crew.moving = True
        changed = self._pace(crew) + self._company_changed(attempt, speeds=news)
        self._tell(changed)

    def halt(self, attempt: SimulatedAttempt) -> None:
        """Stop a program's progress; the program still occupies its instance."""
        if attempt.halted_ms is None:
            attempt.halted_ms = self._timeline.now()
        self._set_speed(attempt, 0.0)
        self._tell(self._leave_crew(attempt))

    def end(self, attempt: SimulatedAttempt) -> None:
        """Remove a program from its instance."""
        residents = self._residents.get(attempt.instance, {})
        if residents.get(attempt.order.run) is not attempt:
            return
        self.halt(attempt)
        del residents[attempt.order.run]
        news = self._task_sets.remove(attempt.instance, Workload(attempt.order.workload))
        if not residents:
            del self._residents[attempt.instance]
        self._tell(self._company_changed(attempt, speeds=news))

    def lose(self, attempt: SimulatedAttempt) -> list[SimulatedAttempt]:
        """Remove a program that was not told to stop; its crew cannot continue without it.

        Returns:
            The others of its crew, which make no progress from now on.
        """
        crew = self._crews.get(attempt.crew)
        self.end(attempt)
        if crew is None:
            return []
        crew.moving = False
        for other in crew.running.values():
            self._set_speed(other, 0.0)
        return list(crew.running.values())

    def _leave_crew(self, attempt: SimulatedAttempt) -> list[SimulatedAttempt]:
        crew = self._crews.get(attempt.crew)
        if crew is not None and crew.running.get(attempt.order.run) is attempt:
            del crew.running[attempt.order.run]
            if crew.running:
                return self._pace(crew)
            del self._crews[attempt.crew]
        return []

    def _go(self, crew: Crew) -> None:
        crew.moving = True
        self._tell(self._pace(crew))

    def _tell(self, changed: Sequence[SimulatedAttempt]) -> None:
        """Report, once per instance, the attempts whose speed has changed and that tell of it."""
        places: dict[InstanceId, dict[SimulatedAttempt, None]] = {}
        for attempt in changed:
            if attempt.work.tells_steps and attempt.speed > 0:
                places.setdefault(attempt.instance, {})[attempt] = None
        for instance, attempts in places.items():
            self._changed(instance, list(attempts))

    def _company_changed(self, cause: SimulatedAttempt, *, speeds: bool) -> list[SimulatedAttempt]:
        """Update the speed of the attempts beside one that came or went.

        Args:
            cause: Which.
            speeds: Whether any of the others is faster or slower for it.

        Returns:
            The others, and those of their gangs elsewhere whose speed has changed too.
        """
        others = [a for a in self._residents.get(cause.instance, {}).values() if a is not cause]
        changed = others.copy()
        for attempt in others if speeds else ():
            if (crew := self._crews.get(attempt.crew)) is not None:
                changed += self._pace(crew)
        return changed

    def _pace(self, crew: Crew) -> list[SimulatedAttempt]:
        """Set the speed of a crew; returns the attempts whose speed has changed."""
        if not crew.moving or not crew.running:
            return []
        slowest = min(
            self._alone_speed(attempt) / _part(attempt) for attempt in crew.running.values()
        )
        if self._size_speed is not None:
            job = next(iter(crew.running.values())).order.job
            apart = len({attempt.instance for attempt in crew.running.values()}) > 1
            slowest *= self._size_speed(job, crew.size, apart)
        return [
            attempt
            for attempt in crew.running.values()
            if self._set_speed(attempt, 0.0 if attempt.paused else slowest)
        ]

    def pause(self, attempt: SimulatedAttempt, *, on: bool) -> None:
        """Have a program do nothing for now, or go on; a new share of its work may have begun."""
        crew = self._crews.get(attempt.crew)
        attempt.paused = on
        if crew is not None and attempt.order.run in crew.running:
            self._set_speed(attempt, 0.0)
            self._tell(self._pace(crew))

    def _alone_speed(self, attempt: SimulatedAttempt) -> float:
        """The speed of an attempt as far as only its own instance matters."""
        workload = Workload(attempt.order.workload)
        return attempt.family_speed * self._task_sets.speed(attempt.instance, workload)

    def _set_speed(self, attempt: SimulatedAttempt, speed: float) -> bool:
        if speed == attempt.speed:
            return False
        now = self._timeline.now()
        attempt.context(now, speed)
        if attempt.end is not None:
            self._timeline.cancel(attempt.end)
            attempt.end = None
        if speed <= 0:
            return True
        work = attempt.work
        due = work.total_ms if not work.failures else work.total_ms / (2 + len(work.failures))
        if attempt.until_ms is not None:
            due = attempt.until_ms if not work.failures else min(due, attempt.until_ms)
        rest_ms = max(0, attempt.left_ms(due, now))
        attempt.end = self._timeline.after(rest_ms, lambda: self._finish(attempt))
        return True


def _part(attempt: SimulatedAttempt) -> float:
    """The part of each batch that an attempt does, against an equal one."""
    gang = attempt.order.gang
    if gang is None or not gang.batch_ppm:
        return 1.0
    return gang.batch_ppm * gang.size / MILLION
