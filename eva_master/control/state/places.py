"""Where task runs are, and where they are headed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping

from eva_master.model.records import TaskRun
from eva_wire.values.ids import InstanceId, RunId
from eva_wire.values.states import RunState


class Places:
    """The task runs of each instance: those that take room there, and those that are to come.

    Args:
        touched: The records of task runs to which something has happened.

    Attributes:
        occupants: By instance, the task runs that take room there.
    """

    def __init__(self, touched: Mapping[RunId, TaskRun]) -> None:
        self._touched = touched
        self.occupants: defaultdict[InstanceId, dict[RunId, None]] = defaultdict(dict)
        self._coming: defaultdict[InstanceId, dict[RunId, None]] = defaultdict(dict)
        self._moving: dict[RunId, None] = {}

    def follow(self, old: TaskRun | None, run: TaskRun) -> None:
        """Follow the new record of a task run."""
        place, came = (None, None) if old is None else (old.instance, _headed_to(old))
        if place != run.instance:
            _reindex(self.occupants, run.id, place, run.instance)
        if came != (coming := _headed_to(run)):
            _reindex(self._coming, run.id, came, coming)
        if run.state is RunState.RUNNING and run.target not in (None, run.instance):
            self._moving[run.id] = None
        else:
            self._moving.pop(run.id, None)

    def occupant_ids(self, instance: InstanceId) -> Collection[RunId]:
        """The ids of the task runs that take room on an instance."""
        return self.occupants.get(instance, ())

    def targeting(self, instance: InstanceId) -> tuple[TaskRun, ...]:
        """The task runs that are, or will be, on an instance."""
        occupants = map(self._touched.__getitem__, self.occupants.get(instance, ()))
        staying = (run for run in occupants if run.target == instance)
        return (*staying, *self.coming(instance))

    def coming(self, instance: InstanceId) -> list[TaskRun]:
        """The task runs that are on their way to an instance."""
        coming = self._coming.get(instance)
        return [] if coming is None else list(map(self._touched.__getitem__, coming))

    def moving(self) -> tuple[TaskRun, ...]:
        """The running task runs that are to run elsewhere."""
        return tuple(map(self._touched.__getitem__, self._moving))


def _headed_to(run: TaskRun) -> InstanceId | None:
    """Where a task run will be, and is not yet."""
    return run.target if run.target != run.instance else None


def _reindex(
    index: defaultdict[InstanceId, dict[RunId, None]],
    run: RunId,
    old: InstanceId | None,
    new: InstanceId | None,
) -> None:
    """Have an index of task runs by instance follow one that is at another instance, or at none."""
    if old is not None:
        index[old].pop(run, None)
        if not index[old]:
            del index[old]
    if new is not None:
        index[new][run] = None
