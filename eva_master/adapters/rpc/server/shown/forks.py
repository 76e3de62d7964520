"""Progress and faults of forks, as messages."""

from __future__ import annotations

from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.adapters.rpc.server.shown.part import Asked, Part
from eva_master.model.fleet.forking import why_unforked
from eva_master.model.forks.explanations import explain_forks, left_out
from eva_master.model.records import Job, TaskRun
from eva_wire.values.ids import run_id
from eva_wire.values.states import TERMINAL_JOB, TERMINAL_RUN


def _explanation(asked: Asked) -> pb.Explanation | None:
    model, job = asked.model, asked.record.job
    rule = model.partitions.home(job.partition).forking
    lines = [
        *explain_forks(
            job.spec.forking.forks,
            job.spec.total_steps,
            job.merging,
            lambda fork: run_id(job.id, 0, fork),
        ),
        "" if job.state in TERMINAL_JOB else why_unforked(job.spec, rule),
        model.unforked(job.id, asked.now) if job.id in model.active else "",
    ]
    return pb.Explanation(forks=filter(None, lines))


def _why(job: Job, run: TaskRun) -> str:
    """Why the part of a fork that runs did not count last."""
    if job.merging is None or run.state in TERMINAL_RUN:
        return ""
    return left_out(job.merging, run.replica)


PART = Part(explanation=_explanation, why=_why)
