"""The waiting tasks of one job that stands in a line, by what they need."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush

from eva_master.model.job import TaskSpec
from eva_master.model.resources import Resources
from eva_wire.values.ids import Family

Shape = tuple[tuple[Family, Resources], ...]
"""Resources that a task needs on each family that can host it. Tasks of one shape fit the same
rooms.
"""


class Queue:
    """The waiting tasks of a job; the first task of each shape is found at once.

    Memory grows with the number of task runs that have a record.

    Args:
        tasks: The tasks of the job, by index.
        begun: Indexes of the tasks that do not wait.
        indices: Indexes of the existing tasks; `None` for all.

    Attributes:
        shapes: The shapes of the tasks.
    """

    def __init__(
        self,
        tasks: Sequence[TaskSpec],
        begun: Iterable[int],
        indices: Sequence[int] | None = None,
    ) -> None:
        self._tasks = tasks
        self._begun = set(begun)
        self._resting: set[int] = set()
        """Waiting tasks that may not start yet."""
        by_shape = _by_shape(tasks, range(len(tasks)) if indices is None else indices)
        self._alike = {shape: _AlikeTasks(indices) for shape, indices in by_shape.items()}
        self.shapes: tuple[Shape, ...] = tuple(self._alike)

    @property
    def started(self) -> int:
        """Number of tasks that run, are about to run or have run."""
        return len(self._begun)

    def put(self, index: int, *, ready: bool = True) -> None:
        """Note that a task waits, and whether it may start now."""
        self._begun.discard(index)
        if not ready:
            self._resting.add(index)
            return
        self._resting.discard(index)
        self._alike[self._tasks[index].demand].put(index)

    def take(self, index: int) -> None:
        """Note that a task no longer waits."""
        self._begun.add(index)
        self._resting.discard(index)

    def first(self, shape: Shape, among: Sequence[int] | None = None) -> int | None:
        """The first waiting task of a shape that may start; `None` without any.

        Args:
            shape: The shape of the task.
            among: Indexes of the tasks to choose from; `None` for all tasks.
        """
        if among is not None:
            return next((index for index in among if self._may_start(index, shape)), None)
        alike = self._alike.get(shape)
        if alike is None:
            return None
        while (index := alike.head()) is not None:
            if index not in self._begun and index not in self._resting:
                return index
            alike.drop(index)
        return None

    def _may_start(self, index: int, shape: Shape) -> bool:
        free = index not in self._begun and index not in self._resting
        return free and self._tasks[index].demand == shape


class _AlikeTasks:
    """Tasks of one shape: a cursor before which none waits but those that came back."""

    __slots__ = ("_at", "_back", "_indices")

    def __init__(self, indices: Sequence[int]) -> None:
        self._indices = indices
        self._at = 0
        self._back: list[int] = []

    def put(self, index: int) -> None:
        if self._at == len(self._indices) or index < self._indices[self._at]:
            heappush(self._back, index)

    def head(self) -> int | None:
        """The first that may wait."""
        if self._back:
            return self._back[0]  # before the cursor, so before all others
        return self._indices[self._at] if self._at < len(self._indices) else None

    def drop(self, index: int) -> None:
        """The head does not wait; if it does again, it is put."""
        if self._back and self._back[0] == index:
            heappop(self._back)
        else:
            self._at += 1


def _by_shape(tasks: Sequence[TaskSpec], indices: Sequence[int]) -> dict[Shape, Sequence[int]]:
    first = tasks[0]
    if all(task is first for task in tasks):
        return {first.demand: indices}
    by_shape: dict[Shape, list[int]] = {}
    for index in indices:
        by_shape.setdefault(tasks[index].demand, []).append(index)
    return dict(by_shape)
