"""Limits that partitions share, as messages of the users' port."""

from __future__ import annotations

from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.adapters.rpc.server.shown.part import Part
from eva_master.ports.reading import ReadModel
from eva_master.ports.shared_limits import SharedLimit
from eva_wire.values.ids import Millis


def shared_limit(limit: SharedLimit) -> pb.SharedLimit:
    """A limit with its use and its queue."""
    return pb.SharedLimit(
        name=limit.name,
        kind=limit.kind,
        about=limit.about,
        used=limit.used,
        most=limit.most,
        used_by=limit.used_by,
        waiting=[
            pb.QueuedJob(
                job=waiting.job,
                partition=waiting.partition,
                priority=waiting.priority,
                tasks=waiting.tasks,
                since_ms=waiting.since_ms,
            )
            for waiting in limit.waiting
        ],
        more=limit.more,
    )


def _cluster(model: ReadModel, now: Millis) -> pb.ClusterState:
    return pb.ClusterState(shared_limits=map(shared_limit, model.shared_limits(now)))


PART = Part(cluster=_cluster)
