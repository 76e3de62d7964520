"""Which tasks of an ended job are done again, and which of them begin from its checkpoints."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from eva_master.model.job import CheckpointOrigin, Retry
from eva_master.model.records import Job, TaskRun
from eva_wire.values.errors import NothingToRetry
from eva_wire.values.states import JobState, RunState, of_task

_MOST_ORIGINS = 8
"""Ended jobs whose checkpoints a retry of a retry of a retry may begin from."""


def retry_of(job: Job, runs: Iterable[TaskRun], *, failed: bool) -> Retry:
    """Tasks of an ended job that a new job does again.

    Tasks that had succeeded begin anew; all others go on from their checkpoints. The members of a
    gang are done again together. Forks begin anew, since the steps of their job are counted anew.

    Args:
        job: The ended job.
        runs: The runs of its tasks: of an array at least of those that are done again.
        failed: Whether only tasks that failed are done again.

    Raises:
        NothingToRetry: None has failed.
    """
    if job.is_gang:
        if failed and job.state is not JobState.FAILED:
            raise _nothing(job)
        unfinished = () if job.state is JobState.SUCCEEDED else tuple(job.spec.indices)
        return Retry(job.id, None, _origins(job, unfinished, unfinished))
    runs_of: defaultdict[int, list[TaskRun]] = defaultdict(list)
    for run in runs:
        runs_of[run.index].append(run)
    states = {index: of_task([run.state for run in runs_of[index]]) for index in sorted(runs_of)}
    chosen = job.spec.indices if job.spec.retry is None else tuple(job.spec.indices)
    if failed:
        chosen = tuple(index for index, state in states.items() if state is RunState.FAILED)
    if not chosen:
        raise _nothing(job)
    unfinished = tuple(index for index in chosen if states[index] is not RunState.SUCCEEDED)
    begun = tuple(index for index in unfinished if runs_of[index][0].attempt)
    origins = () if job.spec.forked else _origins(job, begun, unfinished)
    everything = len(chosen) == len(job.spec.tasks)
    return Retry(job.id, None if everything else tuple(chosen), origins)


def _origins(
    job: Job, begun: tuple[int, ...], unfinished: Sequence[int]
) -> tuple[CheckpointOrigin, ...]:
    """Where checkpoints may be: with the ended job, else where its own tasks might begin from."""
    origins = [CheckpointOrigin(job.id, begun)]
    wanted = set(unfinished)
    for earlier in () if job.spec.retry is None else job.spec.retry.origins:
        tasks = tuple(index for index in earlier.tasks if index in wanted)
        origins.append(CheckpointOrigin(earlier.job, tasks))
    return tuple(origin for origin in origins if origin.tasks)[:_MOST_ORIGINS]


def _nothing(job: Job) -> NothingToRetry:
    return NothingToRetry(
        f"no task of {job.id} failed, so there is none to retry",
        hint=f"`eva retry {job.id}` does all of it again",
    )
