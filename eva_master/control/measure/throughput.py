"""How fast tasks run, measured in windows during which their company did not change."""

from __future__ import annotations

from dataclasses import dataclass, field

from eva_master.control.state.store import State
from eva_master.learning.colocation import Key, key
from eva_master.learning.windows import Mark, pace
from eva_master.model.catalog import base_family
from eva_master.model.ids import CopyId, InstanceId, Millis
from eva_master.model.records import Progress, TaskCopy
from eva_master.model.states import CopyState

_MARKS = 30
"""Marks in a window; reports that come more densely are taken together."""
_STALLED = 10
"""After as many windows without a step a task's last rate is no longer said to be its rate."""


@dataclass(slots=True)
class Window:
    """A measurement under way.

    Attributes:
        marks: When steps were heard of, the first mark opened the window.
    """

    marks: list[Mark] = field(default_factory=list)


class Meters:
    """Open windows; not journalled, since a restart merely begins them anew.

    What comes before a window, and is never measured: everything up to the first finished step of
    an attempt, and then its warm-up, half a window long.
    """

    def __init__(self, window_ms: int) -> None:
        self._window_ms = window_ms
        self._open: dict[CopyId, Window] = {}
        self._warming: dict[CopyId, Millis | None] = {}
        """Attempts that began a short while ago, with the time of their first step."""

    def began(self, copy: CopyId) -> None:
        """An attempt runs from now on."""
        self._warming[copy] = None

    def ended(self, copy: CopyId) -> None:
        """An attempt runs no longer."""
        self._warming.pop(copy, None)
        self._open.pop(copy, None)

    def restart(self, state: State, instance: InstanceId) -> None:
        """Company on an instance changed: what was measured there says nothing now."""
        for copy in state.holders(instance):
            self._open.pop(copy.id, None)
            if copy.progress.rate:
                state.put_progress(copy, copy.progress.at_rate(0.0))

    def sample(self, copy: TaskCopy, heard: Progress, now: Millis) -> tuple[Progress, bool]:
        """Take in a report.

        A window opens and closes with a report of more steps than before, so that a task of slow
        steps is measured over whole ones.

        Args:
            copy: The copy that is reported of.
            heard: Its cumulative figures; `Progress.rate` is ignored.
            now: When the report arrived.

        Returns:
            The figures with the rate of the last complete window, and whether this report
            completed one.
        """
        progress = heard.at_rate(copy.progress.rate)
        window = self._open.get(copy.id)
        if heard.steps < copy.progress.steps:
            self._open.pop(copy.id, None)
            return progress, False
        if heard.steps == copy.progress.steps:
            return self._stalled(copy, progress, now), False
        if window is None:
            if self._warm(copy.id, now):
                self._open[copy.id] = Window([(now, heard.steps)])
            return progress, False
        start, last = window.marks[0][0], window.marks[-1][0]
        if now - start < self._window_ms:
            if now - last >= self._window_ms // _MARKS:
                window.marks.append((now, heard.steps))
            return progress, False
        rate = pace([*window.marks, (now, heard.steps)])
        self._open[copy.id] = Window([(now, heard.steps)])
        return (progress, False) if rate is None else (progress.at_rate(rate), True)

    def _warm(self, copy: CopyId, now: Millis) -> bool:
        """Whether an attempt that did a step has warmed up."""
        if copy not in self._warming:
            return True
        first = self._warming[copy]
        if first is None:
            first = self._warming[copy] = now
        if now - first < self._window_ms // 2:
            return False
        del self._warming[copy]
        return True

    def _stalled(self, copy: TaskCopy, progress: Progress, now: Millis) -> Progress:
        window = self._open.get(copy.id)
        if window is None or now - window.marks[-1][0] < _STALLED * self._window_ms:
            return progress
        del self._open[copy.id]
        return progress.at_rate(0.0)


def standalone_rate(state: State, copy: TaskCopy) -> float | None:
    """Iterations per second of the copy's task alone on the family it is on, `None` if unknown.

    What the user stated goes before what was measured.
    """
    if copy.instance is None:
        return None
    family = base_family(state.instances[copy.instance].offering.type.family)
    task = state.task(copy)
    stated = task.throughput_on(family)
    return stated if stated is not None else state.standalone.lookup(task.workload, family)


def normalised(state: State, copy: TaskCopy) -> float | None:
    """Last measured rate over stand-alone rate, `None` while either is unknown."""
    if copy.progress.rate <= 0 or copy.state is not CopyState.RUNNING:
        return None
    alone = standalone_rate(state, copy)
    return None if not alone else copy.progress.rate / alone


def accompanied(state: State, copy: TaskCopy) -> bool:
    """Whether another copy runs on the instance that a copy is on."""
    assert copy.instance is not None
    return any(
        other.state is CopyState.RUNNING and other.id != copy.id
        for other in state.holders(copy.instance)
    )


def company(state: State, copy: TaskCopy) -> Key:
    """The workload of a copy that is on an instance, and those of the others that run there."""
    assert copy.instance is not None
    others = (
        state.task(other).workload
        for other in state.holders(copy.instance)
        if other.id != copy.id and other.state is CopyState.RUNNING
    )
    return key(state.task(copy).workload, others)
