"""Limits of jobs, of users and of the whole cluster, at the submission of a job."""

from __future__ import annotations

from eva_master.control.settings import NO_LIMIT, Limits
from eva_master.control.state.active_load import ActiveLoad
from eva_master.model.job import JobSpec
from eva_wire.values.errors import LimitExceeded


def refusal(
    load: ActiveLoad, limits: Limits, spec: JobSpec, *, operator: bool = False
) -> LimitExceeded | None:
    """Why a job is beyond a limit, `None` if it is not.

    Args:
        load: The present load.
        limits: The limits.
        spec: The job.
        operator: Whether an operator submits it.
    """
    if spec.priority > limits.priority and not operator:
        return LimitExceeded(
            f"the job has priority {spec.priority:,}, and users may state {limits.priority:,}"
            " at most (limits.priority)",
            hint="state a lower one, or have an operator submit it or raise the limit",
        )
    owner, tasks, waits, text = spec.owner, spec.size, len(spec.stage.depends_on), spec.text
    if tasks > limits.tasks_per_job:
        return LimitExceeded(
            f"the job has {tasks:,} tasks, and a job may have {limits.tasks_per_job:,}"
            " (limits.tasks_per_job)",
            hint="split it into several jobs, or have an operator raise the limit",
        )
    for what, count, most, setting in (
        ("your unfinished jobs", load.jobs_of[owner] + 1, limits.jobs_per_user, "jobs_per_user"),
        (
            "the tasks of your unfinished jobs",
            load.tasks_of[owner] + tasks,
            limits.tasks_per_user,
            "tasks_per_user",
        ),
        (
            "the jobs that your unfinished ones run after",
            load.waits_of[owner] + waits,
            limits.waits_per_user if waits else NO_LIMIT,
            "waits_per_user",
        ),
        (
            "the characters of commands, variables and inputs of your unfinished jobs",
            load.text_of[owner] + text,
            limits.text_per_user,
            "text_per_user",
        ),
        ("the cluster's unfinished jobs", load.jobs + 1, limits.jobs, "jobs"),
        ("the tasks of the cluster's unfinished jobs", load.tasks + tasks, limits.tasks, "tasks"),
        (
            "the jobs that the cluster's unfinished ones run after",
            load.waits + waits,
            limits.waits if waits else NO_LIMIT,
            "waits",
        ),
        (
            "the characters of commands, variables and inputs of the cluster's unfinished jobs",
            load.text + text,
            limits.text,
            "text",
        ),
    ):
        if count > most:
            return LimitExceeded(
                f"with this job {what} would be {count:,}, and {most:,} are allowed"
                f" (limits.{setting})",
                hint="submit it again when some have ended, cancel some, or have an operator "
                "raise the limit",
            )
    return None
