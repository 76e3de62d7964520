"""How fast tasks run, measured in windows during which their company did not change."""

from __future__ import annotations

from dataclasses import dataclass, replace

from eva_master.control.state import State
from eva_master.learning.colocation import Key, key
from eva_master.model.ids import CopyId, InstanceId, Millis
from eva_master.model.records import Progress, TaskCopy
from eva_master.model.states import CopyState


@dataclass(frozen=True, slots=True)
class Window:
    """Where a measurement began."""

    start_ms: Millis
    steps: int


class Meters:
    """Open windows; not journalled, since a restart merely begins them anew."""

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self._open: dict[CopyId, Window] = {}

    def restart(self, state: State, instance: InstanceId) -> None:
        """Company on an instance changed: what was measured there says nothing now."""
        for copy in state.holders(instance):
            self._open.pop(copy.id, None)
            if copy.progress.rate:
                unknown = replace(copy.progress, rate=0.0)
                state.put_copy(replace(copy, progress=unknown), journal=False)

    def sample(self, copy: TaskCopy, heard: Progress, now: Millis) -> tuple[Progress, bool]:
        """Take in a report.

        Args:
            copy: The copy that is reported of.
            heard: Its cumulative figures; `Progress.rate` is ignored.
            now: When the report arrived.

        Returns:
            The figures with the rate of the last complete window, and whether this report
            completed one. Start-up is left out: a window opens with the first finished step.
        """
        progress = replace(heard, rate=copy.progress.rate)
        window = self._open.get(copy.id)
        if heard.steps == 0 or heard.steps < copy.progress.steps:
            self._open.pop(copy.id, None)
            return progress, False
        if window is None:
            self._open[copy.id] = Window(now, heard.steps)
            return progress, False
        elapsed = now - window.start_ms
        if elapsed < self._window_ms:
            return progress, False
        self._open[copy.id] = Window(now, heard.steps)
        return replace(progress, rate=(heard.steps - window.steps) * 1000 / elapsed), True


def standalone_rate(state: State, copy: TaskCopy) -> float | None:
    """Iterations per second of the copy's task alone on the family it is on, `None` if unknown.

    What the user stated goes before what was measured.
    """
    if copy.instance is None:
        return None
    family = state.instances[copy.instance].offering.type.family
    task = state.task(copy)
    stated = task.throughput_on(family)
    return stated if stated is not None else state.standalone.lookup(task.workload, family)


def normalised(state: State, copy: TaskCopy) -> float | None:
    """Last measured rate over stand-alone rate, `None` while either is unknown."""
    if copy.progress.rate <= 0 or copy.state is not CopyState.RUNNING:
        return None
    alone = standalone_rate(state, copy)
    return None if not alone else copy.progress.rate / alone


def company(state: State, copy: TaskCopy) -> Key:
    """The workload of a copy that is on an instance, and those of the others that run there."""
    assert copy.instance is not None
    others = (
        state.task(other).workload
        for other in state.holders(copy.instance)
        if other.id != copy.id and other.state is CopyState.RUNNING
    )
    return key(state.task(copy).workload, others)
