"""How long a worker takes over a task, and who pays for a move: the simulated workers' options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from eva_master.model.actions import TaskOrder
from eva_master.model.ids import InstanceId, Millis, RunId


class Accounting(StrEnum):
    """When a task's files and image come to its instance."""

    COMPAT = "compat"
    """After the stop at the source: a move's whole delay is the task's own."""
    PRODUCTION = "production"
    """Before it: the task runs on at the source while its target is made ready."""


class Durations(Protocol):
    """What happens on a worker takes so long, in milliseconds."""

    @property
    def report_ms(self) -> int:
        """From one report of a task's progress to the next, where they are periodic."""
        ...

    def fetch(self, order: TaskOrder, on: InstanceId, now: Millis, /) -> int:
        """From an order to fetch until all is there."""
        ...

    def start(self, order: TaskOrder, on: InstanceId, now: Millis, /) -> int:
        """From an order to start until the program runs."""
        ...

    def init(self, order: TaskOrder, /) -> int:
        """From the start of a job's last task to first progress."""
        ...

    def stop(self, order: TaskOrder, /) -> int:
        """From an order to stop until a checkpoint is stored and the room is free."""
        ...

    def lost(self, instance: InstanceId, /) -> None:
        """An instance's disk is gone."""
        ...


@dataclass(frozen=True, slots=True)
class Delays:
    """The same for all tasks, in milliseconds; files have to be fetched for moves alone.

    Attributes:
        report_ms: From one report of a task's progress to the next.
    """

    fetch_ms: int = 2_000
    start_ms: int = 5_000
    stop_ms: int = 3_000
    report_ms: int = 60_000

    def fetch(self, _order: TaskOrder, _on: InstanceId, _now: Millis) -> int:
        """See `Durations.fetch`."""
        return self.fetch_ms

    def start(self, _order: TaskOrder, _on: InstanceId, _now: Millis) -> int:
        """See `Durations.start`."""
        return self.start_ms

    def init(self, _order: TaskOrder) -> int:
        """Progress begins with the program."""
        return 0

    def stop(self, _order: TaskOrder) -> int:
        """See `Durations.stop`."""
        return self.stop_ms

    def lost(self, instance: InstanceId) -> None:
        """Nothing is kept on disks."""


@dataclass(frozen=True, slots=True)
class MoveDelays:
    """What the starts and stops of one task take, in milliseconds.

    Attributes:
        image: What has to be on an instance before the task starts there.
        fetch_ms: To bring its files to an instance.
        build_ms: To make the image, when it meets an instance for the first time.
        init_ms: From the start of its job's last task to first progress.
        stop_ms: To end it and to store its checkpoint.
    """

    image: str = ""
    fetch_ms: int = 0
    build_ms: int = 0
    init_ms: int = 0
    stop_ms: int = 0


class TaskDelays:
    """Each task's own, with the images that the instances have.

    Implements `Durations`.

    Args:
        toll_of: What a task's starts and stops take.
        accounting: When files and image come to an instance.

    """

    report_ms = 60_000

    def __init__(self, toll_of: Callable[[RunId], MoveDelays], accounting: Accounting) -> None:
        self._toll_of = toll_of
        self._ahead = accounting is Accounting.PRODUCTION
        self._images: dict[InstanceId, dict[str, Millis]] = {}
        """When each image is, or was, ready on an instance."""
        self._fetched: dict[InstanceId, dict[tuple[RunId, int], Millis]] = {}
        """When the files of an attempt are, or were, there."""

    def fetch(self, order: TaskOrder, on: InstanceId, now: Millis) -> int:
        """All of it where it is done ahead of the stop; nothing where it is done after it."""
        if not self._ahead:
            return 0
        there = self._fetched.setdefault(on, {})
        key = (order.run, order.attempt)
        if key not in there:
            there[key] = self._arrival(order.run, on, now)
        return max(0, there[key] - now)

    def start(self, order: TaskOrder, on: InstanceId, now: Millis) -> int:
        """What is left to be fetched and made."""
        there = self._fetched.get(on, {}).pop((order.run, order.attempt), None)
        return max(0, (self._arrival(order.run, on, now) if there is None else there) - now)

    def _arrival(self, run: RunId, on: InstanceId, now: Millis) -> Millis:
        """When files and image will be on an instance; an image is made once."""
        move_delays = self._toll_of(run)
        fetched = Millis(now + move_delays.fetch_ms)
        images = self._images.setdefault(on, {})
        made = images.setdefault(move_delays.image, Millis(fetched + move_delays.build_ms))
        return max(fetched, made)

    def init(self, order: TaskOrder) -> int:
        """See `Durations.init`."""
        return self._toll_of(order.run).init_ms

    def stop(self, order: TaskOrder) -> int:
        """See `Durations.stop`."""
        return self._toll_of(order.run).stop_ms

    def lost(self, instance: InstanceId) -> None:
        """See `Durations.lost`."""
        self._images.pop(instance, None)
        self._fetched.pop(instance, None)
