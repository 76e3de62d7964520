"""Snapshots on their way to another process: only what that does not have yet.

From one round to the next a large cluster changes little, and views that have not changed are the
same objects (see `eva_master.control.state.view_cache`). So both ends keep the last snapshot, and
only new views and the names of those that are gone are sent.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from eva_master.control.state.view_cache import SortedValues
from eva_master.model.planning.snapshot import InstanceView, JobView, RunView, Snapshot


@dataclass(frozen=True, slots=True)
class Difference:
    """What one snapshot has that another one has not.

    Attributes:
        base: Number of the snapshot that it adds to, 0 for an empty one.
        number: Of the snapshot that comes of it.
        rest: The snapshot without jobs, task runs and instances.
        dropped: Names of jobs, task runs and instances that are gone.
    """

    base: int
    number: int
    rest: Snapshot
    jobs: tuple[JobView, ...]
    runs: tuple[RunView, ...]
    instances: tuple[InstanceView, ...]
    dropped: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]


class Sender:
    """The end that has the snapshots."""

    def __init__(self) -> None:
        self._number = 0
        self._base = 0
        self._sent: tuple[dict[str, Any], ...] = ({}, {}, {})

    def difference(self, snapshot: Snapshot) -> Difference:
        """What to send of a snapshot; from now on the other end counts as having it."""
        views: tuple[tuple[Any, ...], ...] = snapshot.jobs, snapshot.runs, snapshot.instances
        kept: list[dict[str, Any]] = []
        fresh: list[Any] = []
        dropped: list[tuple[str, ...]] = []
        for sent, present in zip(self._sent, views, strict=True):
            now = {view.id: view for view in present}
            fresh.append(tuple(view for view in present if sent.get(view.id) is not view))
            dropped.append(tuple(name for name in sent if name not in now))
            kept.append(now)
        self._number += 1
        base, self._base, self._sent = self._base, self._number, tuple(kept)
        jobs, runs, instances = fresh
        gone = dropped[0], dropped[1], dropped[2]
        rest = replace(snapshot, jobs=(), runs=(), instances=())
        return Difference(base, self._number, rest, jobs, runs, instances, gone)

    def forget(self) -> None:
        """The other end may have lost track: send all of the next snapshot."""
        self._base, self._sent = 0, ({}, {}, {})


class Receiver:
    """The end that wants them."""

    def __init__(self) -> None:
        self._number = 0
        self._sorted: tuple[SortedValues[str, Any], ...] = (
            SortedValues(),
            SortedValues(),
            SortedValues(),
        )

    def snapshot(self, difference: Difference) -> Snapshot:
        """The snapshot that was sent.

        Raises:
            LookupError: The snapshot that the difference adds to never came.
        """
        if difference.base == 0:
            self._sorted = SortedValues(), SortedValues(), SortedValues()
        elif difference.base != self._number:
            raise LookupError(f"picture {difference.base} is not {self._number}")
        fresh: list[Iterable[Any]] = [difference.jobs, difference.runs, difference.instances]
        for sorted_values, views, gone in zip(self._sorted, fresh, difference.dropped, strict=True):
            for name in gone:
                sorted_values.drop(name)
            for view in views:
                sorted_values.put(view.id, view)
        self._number = difference.number
        jobs, runs, instances = (sorted_values.ordered() for sorted_values in self._sorted)
        return replace(difference.rest, jobs=jobs, runs=runs, instances=instances)
