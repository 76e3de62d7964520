"""How long starts and stops take, from what the machine writes down and hears of them."""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.control.state.store import State
from eva_master.learning.delays import Delay
from eva_master.model.progress import Progress
from eva_master.model.records import Instance, StopReason, TaskRun
from eva_wire.values.ids import InstanceId, Millis, RunId
from eva_wire.values.states import InstanceState, RunState

Latency = tuple[Delay, int]
"""Kind of a measured delay, and its milliseconds."""


@dataclass(slots=True)
class _Start:
    """An attempt that has not done a step yet.

    Attributes:
        at: When its start was ordered.
        steps: Steps in its first report, which later ones must exceed. `None` before that.
        running_ms: Time from the order to the program's start, `None` before that.
    """

    at: Millis
    steps: int | None
    running_ms: int | None = None


@dataclass(frozen=True, slots=True)
class _Stop:
    """A stop that is not confirmed yet.

    Attributes:
        at: When it was asked for.
        generation: The newest checkpoint at that time.
    """

    at: Millis
    generation: int


class LatencyMeters:
    """Measurements of starts and stops that are under way; a restart of the master ends them."""

    def __init__(self) -> None:
        self._starts: dict[RunId, _Start] = {}
        self._stops: dict[RunId, _Stop] = {}
        self._new: set[InstanceId] = set()
        self._set_up: dict[InstanceId, Millis] = {}

    def instance_changed(self, instance: Instance) -> None:
        """Take in that an instance changed its state: without images once it is ready."""
        self._new.discard(instance.id)
        self._set_up.pop(instance.id, None)
        if instance.state is InstanceState.READY and not instance.owned:
            self._new.add(instance.id)

    def image_there(
        self, instance: InstanceId, run: RunId | None, image_ms: int, now: Millis
    ) -> bool:
        """Take in that an image is on an instance.

        The first one is a part of what a launch costs. Starts that wait for it begin when it is
        there; a later image is a part of the start that waits for it.

        Args:
            instance: The instance.
            run: The task run that has started with it; `None` if none has yet.
            image_ms: For how long it was fetched or built.
            now: The time.

        Returns:
            Whether it is the first one.
        """
        start = None if run is None else self._starts.get(run)
        ready_ms = Millis(now if start is None else start.at + image_ms)
        first = instance in self._new
        if first:
            self._new.discard(instance)
            self._set_up[instance] = ready_ms
        if start is not None:
            waited_for = min(ready_ms, self._set_up.get(instance, start.at))
            start.at = max(start.at, waited_for)
        return first

    def changed(self, old: TaskRun, new: TaskRun, now: Millis) -> Latency | None:
        """Take in that a task run changed its state.

        Returns:
            A stop that left a newer checkpoint than there was; or the start of an attempt that
            is over and never reported a step: then it is the time until its program ran.
        """
        latency: Latency | None = None
        start = self._starts.get(new.id)
        match new.state:
            case RunState.STARTING:
                self._starts[new.id] = _Start(now, None if new.generation else 0)
                return None
            case RunState.RUNNING:
                if start is not None:
                    start.running_ms = now - start.at
                return None
            case RunState.STOPPING:
                self._stops[new.id] = _Stop(now, old.generation)
            case _:
                latency = self._stopped(old, new, now)
        if start is not None:
            del self._starts[new.id]
            if latency is None and start.running_ms is not None:
                latency = Delay.START, start.running_ms
        return latency

    def _stopped(self, old: TaskRun, new: TaskRun, now: Millis) -> Latency | None:
        stop = self._stops.pop(new.id, None)
        lost = old.stop is StopReason.LOST or new.lost == old.attempt
        if stop is None or lost or new.generation <= stop.generation:
            return None
        return Delay.CHECKPOINT, now - stop.at

    def stepped(self, run: RunId, heard: Progress, now: Millis) -> Latency | None:
        """Take in a report of progress; the first one of a new step ends the start."""
        start = self._starts.get(run)
        if start is None:
            return None
        if start.steps is None:
            start.steps = heard.steps
        if heard.steps <= start.steps:
            return None
        del self._starts[run]
        return Delay.START, now - start.at

    def forget(self, state: State, instance: InstanceId) -> None:
        """A worker was away: what happened there meanwhile is heard of late."""
        self._new.discard(instance)
        self._set_up.pop(instance, None)
        for run in state.occupants(instance):
            self._starts.pop(run.id, None)
            self._stops.pop(run.id, None)
