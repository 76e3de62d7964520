"""Converts what is known of how long jobs run to messages for users."""

from __future__ import annotations

from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.adapters.rpc.server.shown.part import Asked, Part
from eva_master.model.planning.estimate import Estimate, Evidence, Source
from eva_master.model.records import Job
from eva_master.ports.previews import Foreseen
from eva_master.ports.reading import ReadModel
from eva_wire.values.ids import MILLION


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


def _evidence(found: Evidence) -> pb.RunTimeEvidence:
    return pb.RunTimeEvidence(
        pilots=found.pilots,
        pilots_ms=found.pilots_ms,
        feature=found.feature,
        value=found.value,
        jobs=found.jobs,
        jobs_ms=found.jobs_ms,
        spread=found.spread_ppm / MILLION,
    )


def _job(asked: Asked) -> pb.Job:
    return pb.Job(
        estimate=estimate_of(asked.outlook.estimate),
        contradicted=contradicted_of(asked.model, asked.record.job),
    )


def _explanation(asked: Asked) -> pb.Explanation | None:
    estimate = asked.outlook.estimate
    if estimate is None or estimate.source is Source.STATED:
        return None
    evidence = asked.model.evidence(asked.record.job)
    return None if evidence is None else pb.Explanation(evidence=_evidence(evidence))


def _plan(foreseen: Foreseen) -> pb.PlanResponse | None:
    job = foreseen.job
    return None if job is None else pb.PlanResponse(estimate=estimate_of(job.progress.estimate))


PART = Part(job=_job, explanation=_explanation, plan=_plan)
