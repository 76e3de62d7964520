"""Converts what is known of how long jobs run to messages for users."""

from __future__ import annotations

from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.model.planning.estimate import Estimate
from eva_master.model.records import Job
from eva_master.ports.reading import ReadModel


def estimate_of(known: Estimate | None) -> pb.RunTimeEstimate | None:
    """How long a task runs in all, if that is known."""
    if known is None:
        return None
    return pb.RunTimeEstimate(
        mean_ms=0 if known.vague else known.mean_ms,
        least_ms=known.least_ms,
        most_ms=known.most_ms,
        source=known.source.value,
        tasks=known.tasks,
    )


def contradicted_of(model: ReadModel, known: Job) -> pb.ContradictedDuration | None:
    """Why a stated duration is not believed, if it is not."""
    contradiction = model.contradicted(known)
    if contradiction is None:
        return None
    return pb.ContradictedDuration(
        workload=contradiction.workload,
        stated_ms=contradiction.stated_ms,
        took_ms=contradiction.took_ms,
    )
