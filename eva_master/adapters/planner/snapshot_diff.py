"""Sends snapshots to another process as differences from the last one.

A large cluster changes little between rounds, and unchanged views are the same objects (see
`eva_master.control.state.view_cache`). So both ends keep the last snapshot, and only new views and
the ids of removed ones are sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from eva_master.control.state.view_cache import SortedValues
from eva_master.model.job import JobSpec
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.snapshot import InstanceView, RunView, Snapshot
from eva_master.model.values import by_id

_KNOWN = JobSpec("", "", ())
"""In place of the spec of a job's last view; no job has an empty name."""


@dataclass(frozen=True, slots=True)
class SnapshotDiff:
    """The difference of a snapshot from an earlier one.

    Attributes:
        base: Number of the snapshot that it applies to, 0 for an empty one.
        number: Number of the resulting snapshot.
        jobs: New views of jobs, with an empty spec where a job's is that of its last view.
        rest: The snapshot without jobs, task runs and instances.
        dropped: Ids of jobs, task runs and instances that are gone.
    """

    base: int
    number: int
    rest: Snapshot
    jobs: tuple[JobView, ...]
    runs: tuple[RunView, ...]
    instances: tuple[InstanceView, ...]
    dropped: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]


class Sender:
    """Makes differences, at the end that has the snapshots."""

    def __init__(self) -> None:
        self._number = 0
        self._base = 0
        self._sent: tuple[Mapping[str, Any], ...] = ({}, {}, {})

    def diff(self, snapshot: Snapshot) -> SnapshotDiff:
        """The difference to send for a snapshot, which the other end is then assumed to have."""
        views: tuple[tuple[Any, ...], ...] = snapshot.jobs, snapshot.runs, snapshot.instances
        sent_jobs: Mapping[str, JobView] = self._sent[0]
        kept: list[Mapping[str, Any]] = []
        fresh: list[Any] = []
        dropped: list[tuple[str, ...]] = []
        for sent, present in zip(self._sent, views, strict=True):
            now = by_id(present)
            fresh.append(tuple(view for view in present if sent.get(view.id) is not view))
            dropped.append(tuple(name for name in sent if name not in now))
            kept.append(now)
        self._number += 1
        base, self._base, self._sent = self._base, self._number, tuple(kept)
        jobs, runs, instances = tuple(_brief(view, sent_jobs) for view in fresh[0]), *fresh[1:]
        gone = dropped[0], dropped[1], dropped[2]
        rest = replace(snapshot, jobs=(), runs=(), instances=())
        return SnapshotDiff(base, self._number, rest, jobs, runs, instances, gone)

    def forget(self) -> None:
        """Send all of the next snapshot, since the other end may have lost the last one."""
        self._base, self._sent = 0, ({}, {}, {})


def _brief(view: JobView, sent_jobs: Mapping[str, JobView]) -> JobView:
    """A job's view without its spec, if the other end has that: specs never change, views do."""
    before = sent_jobs.get(view.id)
    return view if before is None or before.spec is not view.spec else replace(view, spec=_KNOWN)


class SnapshotReceiver:
    """Restores snapshots, at the receiving end."""

    def __init__(self) -> None:
        self._number = 0
        self._sorted: tuple[SortedValues[str, Any], ...] = (
            SortedValues(),
            SortedValues(),
            SortedValues(),
        )

    def snapshot(self, diff: SnapshotDiff) -> Snapshot:
        """The snapshot that was sent.

        Raises:
            LookupError: The snapshot that the difference applies to was not received.
        """
        if diff.base == 0:
            self._sorted = SortedValues(), SortedValues(), SortedValues()
        elif diff.base != self._number:
            raise LookupError(f"snapshot {diff.base} is not {self._number}")
        jobs = [self._with_spec(view) for view in diff.jobs]
        fresh: list[Iterable[Any]] = [jobs, diff.runs, diff.instances]
        for sorted_values, views, gone in zip(self._sorted, fresh, diff.dropped, strict=True):
            for name in gone:
                sorted_values.drop(name)
            for view in views:
                sorted_values.put(view.id, view)
        self._number = diff.number
        views, runs, instances = (sorted_values.ordered() for sorted_values in self._sorted)
        return replace(diff.rest, jobs=views, runs=runs, instances=instances)

    def _with_spec(self, view: JobView) -> JobView:
        """A job's view with the spec of its last view, if it came without one."""
        if view.spec.name:
            return view
        before: JobView | None = self._sorted[0].get(view.id)
        if before is None:
            raise LookupError(f"job {view.id} came without its spec, and no view of it is here")
        return replace(view, spec=before.spec)
