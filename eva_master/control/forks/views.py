"""What policies and people are told of forks."""

from __future__ import annotations

from collections.abc import Sequence

from eva_master.control.state.records import Records
from eva_master.model.ids import run_id
from eva_master.model.records import Job, TaskRun
from eva_master.model.states import TERMINAL_RUN


def forks_left(state: Records, job: Job, seen: Sequence[TaskRun]) -> int | None:
    """How many more forks of a job may be given a place now; `None` if it has none.

    Args:
        state: Where it is looked up.
        job: The job.
        seen: All of its task runs that have a place.
    """
    if not job.forked:
        return None
    own = state.runs[run_id(job.id, 0)]
    extras = (state.runs.get(run_id(job.id, 0, it)) for it in range(1, own.replicas + 1))
    over = sum(1 for it in extras if it is not None and it.state in TERMINAL_RUN)
    return max(0, job.spec.forks - 1 - over - sum(it.extra for it in seen))
