"""Which tasks of a job are alike, and why those wait to which nothing has happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eva_master.model.job import JobSpec, TaskSpec, different

_REASONS = 64
"""Kinds that have a reason of their own at most; those after them share the last one."""


class Kinds:
    """The tasks of a job by kind: a plan treats those of one kind alike. Nothing changes it.

    Args:
        spec: The job; it takes time in proportion to its tasks.

    Attributes:
        tasks: The first task of each kind.
        groups: The indices of all tasks of each kind, ascending.
    """

    __slots__ = ("_number", "groups", "tasks")

    def __init__(self, spec: JobSpec) -> None:
        tasks = spec.tasks
        self._number: dict[int, int] = {}
        """The number of a task's kind, by the identity of the task, which the job keeps."""
        if len(different(tasks)) == 1:
            self.tasks: tuple[TaskSpec, ...] = tasks[:1]
            self.groups: tuple[Sequence[int], ...] = (spec.indices,)
            return
        numbers: dict[tuple[object, ...], int] = {}
        groups: list[list[int]] = []
        for index in spec.indices:
            task = tasks[index]
            number = self._number.get(id(task))
            if number is None:
                kind = task.workload, task.demand, task.throughput, task.reports_steps
                number = self._number[id(task)] = numbers.setdefault(kind, len(groups))
                if number == len(groups):
                    groups.append([])
            groups[number].append(index)
        self.tasks = tuple(tasks[group[0]] for group in groups)
        self.groups = tuple(map(tuple, groups))

    def of(self, task: TaskSpec) -> int:
        """The number of a task's kind. The task is one of the job's, not an equal one."""
        return self._number.get(id(task), 0)

    def place(self, task: TaskSpec) -> int:
        """Under which number the reason is kept for which tasks of its kind wait."""
        return min(self.of(task), _REASONS - 1)

    def why(self, reasons: Mapping[int, str], task: TaskSpec) -> str:
        """Why a task waits to which nothing has happened; empty if no plan had to say so."""
        return reasons.get(self.place(task), "") if reasons else ""
