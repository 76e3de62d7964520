"""Figures of forks for policies and users."""

from __future__ import annotations

from collections.abc import Sequence

from eva_master.control.state.records import Records
from eva_master.model.records import Job, TaskRun
from eva_wire.values.ids import run_id
from eva_wire.values.states import TERMINAL_RUN


def forks_left(state: Records, job: Job, seen: Sequence[TaskRun]) -> int | None:
    """Number of further forks of a job that may be given a place now; `None` if it has none.

    Args:
        state: The records.
        job: The job.
        seen: All of its task runs that have a place.
    """
    if not job.forked:
        return None
    own = state.runs[run_id(job.id, 0)]
    extras = (state.runs.get(run_id(job.id, 0, number)) for number in range(1, own.replicas + 1))
    if job.missing_secrets:
        return 0
    over = sum(1 for extra in extras if extra is not None and extra.state in TERMINAL_RUN)
    return max(0, job.spec.forking.forks - 1 - over - sum(run.extra for run in seen))
