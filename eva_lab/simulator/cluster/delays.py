"""How long simulated workers take for tasks, and when files are fetched for a move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from eva_master.model.actions import TaskOrder
from eva_master.model.values import quick
from eva_wire.values.ids import InstanceId, Millis, RunId


class Accounting(StrEnum):
    """When a task's files and image are fetched to its new instance."""

    COMPAT = "compat"
    """After the stop at the source, so that the task waits for the whole delay."""
    PRODUCTION = "production"
    """Before the stop: the task keeps running while its target is prepared."""


class Durations(Protocol):
    """How long actions on a worker take, in milliseconds."""

    @property
    def report_ms(self) -> int:
        """Interval of a task's progress reports, where they are periodic."""
        ...

    def fetch(self, order: TaskOrder, on: InstanceId, now: Millis, /) -> int:
        """Time from the order to fetch until all files are there."""
        ...

    def start(self, order: TaskOrder, on: InstanceId, now: Millis, /) -> int:
        """Time from the order to start until the program runs."""
        ...

    def image(self, order: TaskOrder, on: InstanceId, /) -> int | None:
        """How much of that time goes by after the files are there; `None` without an image."""
        ...

    def init(self, order: TaskOrder, /) -> int:
        """Time from the start of a job's last task to first progress."""
        ...

    def stop(self, order: TaskOrder, /) -> int:
        """Time from the order to stop until a checkpoint is stored and the room is free."""
        ...

    def lost(self, instance: InstanceId, /) -> None:
        """Note that an instance has lost its disk."""
        ...


@dataclass(frozen=True, slots=True)
class EqualDelays:
    """Equal delays for all tasks, in milliseconds. Files are only fetched for moves.

    Attributes:
        report_ms: Interval of a task's progress reports.
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

    def image(self, _order: TaskOrder, _on: InstanceId) -> int | None:
        """Return `None`: tasks have no images."""
        return None

    def init(self, _order: TaskOrder) -> int:
        """Return zero: progress begins with the program."""
        return 0

    def stop(self, _order: TaskOrder) -> int:
        """See `Durations.stop`."""
        return self.stop_ms

    def lost(self, instance: InstanceId) -> None:
        """Do nothing, since no delay depends on the disk."""


@quick
@dataclass(frozen=True, slots=True)
class MoveDelays:
    """How long starts and stops of one task take, in milliseconds.

    Attributes:
        image: The image that must be on an instance before the task starts there.
        fetch_ms: Time to fetch its files.
        build_ms: Time to build the image, the first time on each instance.
        init_ms: Time from the start of its job's last task to first progress.
        stop_ms: Time to stop it and to store its checkpoint.
    """

    image: str = ""
    fetch_ms: int = 0
    build_ms: int = 0
    init_ms: int = 0
    stop_ms: int = 0


class TaskDelays:
    """Delays of each task, given the images that are already on the instances.

    Implements `Durations`.

    Args:
        move_delays_of: How long a task's starts and stops take.
        accounting: When files and image are fetched.

    """

    report_ms = 60_000

    def __init__(
        self, move_delays_of: Callable[[RunId], MoveDelays], accounting: Accounting
    ) -> None:
        self._move_delays_of = move_delays_of
        self._ahead = accounting is Accounting.PRODUCTION
        self._images: dict[InstanceId, dict[str, Millis]] = {}
        """When each image is or was ready on an instance."""
        self._images_waited: dict[InstanceId, dict[RunId, int]] = {}
        """For how long each task run that asks next has waited for its image."""
        self._fetched: dict[InstanceId, dict[tuple[RunId, int], Millis]] = {}
        """When the files of an attempt are or were on its instance."""

    def fetch(self, order: TaskOrder, on: InstanceId, now: Millis) -> int:
        """The whole time to fetch, if that is done before the stop; 0 if it is done after it."""
        if not self._ahead:
            return 0
        arrivals = self._fetched.setdefault(on, {})
        key = (order.run, order.attempt)
        if key not in arrivals:
            arrivals[key] = self._arrival(order.run, on, now)
        return max(0, arrivals[key] - now)

    def start(self, order: TaskOrder, on: InstanceId, now: Millis) -> int:
        """The time to fetch and build what is not there yet."""
        arrival = self._fetched.get(on, {}).pop((order.run, order.attempt), None)
        return max(0, (self._arrival(order.run, on, now) if arrival is None else arrival) - now)

    def image(self, order: TaskOrder, on: InstanceId) -> int | None:
        """See `Durations.image`; `None` as well where all of a delay counts for each start."""
        waits = self._images_waited.get(on, {})
        return waits.pop(order.run, 0) if self._ahead else None

    def _arrival(self, run: RunId, on: InstanceId, now: Millis) -> Millis:
        """When files and image will be on an instance. An image is built once per instance."""
        move_delays = self._move_delays_of(run)
        fetched = Millis(now + move_delays.fetch_ms)
        images = self._images.setdefault(on, {})
        made = images.setdefault(move_delays.image, Millis(fetched + move_delays.build_ms))
        self._images_waited.setdefault(on, {})[run] = max(0, made - fetched)
        return max(fetched, made)

    def init(self, order: TaskOrder) -> int:
        """See `Durations.init`."""
        return self._move_delays_of(order.run).init_ms

    def stop(self, order: TaskOrder) -> int:
        """See `Durations.stop`."""
        return self._move_delays_of(order.run).stop_ms

    def lost(self, instance: InstanceId) -> None:
        """See `Durations.lost`."""
        self._images.pop(instance, None)
        self._images_waited.pop(instance, None)
        self._fetched.pop(instance, None)
