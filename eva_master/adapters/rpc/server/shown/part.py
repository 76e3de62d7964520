"""A feature's part of the answers to users, and of metrics."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.metrics_core import Metric

from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.model.catalog import Catalog
from eva_master.model.job import JobSpec
from eva_master.model.records import Job, TaskRun
from eva_master.ports.previews import Foreseen
from eva_master.ports.reading import JobRecord, Outlook, ReadModel
from eva_wire.values.ids import Millis


@dataclass(frozen=True, slots=True)
class Asked:
    """A job that is shown or explained.

    Attributes:
        model: The cluster.
        record: The job, from the model or from the archive.
        outlook: When it ends.
        now: The time.
    """

    model: ReadModel
    record: JobRecord
    outlook: Outlook
    now: Millis


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Additions of a feature to each answer: messages to merge into it, `None` for nothing.

    Attributes:
        job: Adds to the message of a job.
        waits: Why all tasks of a job wait, where the feature is the reason; else empty.
        why: Why a task has a run, besides the reason in its record; else empty.
        explanation: Adds to the explanation of a job.
        plan: Adds to the outlook of a job that is not submitted.
        cluster: Adds to the state of the cluster.
        doubts: Warnings to the user who submits a job, by what its partition sells.
        notes: Notes on matters that need attention.
        metrics: Families of metrics, whose labels are bounded.
    """

    job: Callable[[Asked], pb.Job | None] | None = None
    waits: Callable[[ReadModel, Job], str] | None = None
    why: Callable[[Job, TaskRun], str] | None = None
    explanation: Callable[[Asked], pb.Explanation | None] | None = None
    plan: Callable[[Foreseen], pb.PlanResponse | None] | None = None
    cluster: Callable[[ReadModel, Millis], pb.ClusterState | None] | None = None
    doubts: Callable[[JobSpec, Catalog], Iterable[str]] | None = None
    notes: Callable[[ReadModel, Millis], Iterator[pb.Note]] | None = None
    metrics: Callable[[ReadModel, Millis], Iterator[Metric]] | None = None
