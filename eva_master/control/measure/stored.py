"""Work of task runs that their checkpoints hold."""

from __future__ import annotations

from eva_master.control.measure.throughput import worked_ms
from eva_master.control.state.records import Records, crew
from eva_master.model.progress import Progress
from eva_master.model.records import Stored, TaskRun
from eva_master.model.values import replace
from eva_wire.values.ids import Millis
from eva_wire.values.states import RunState


def heard(
    state: Records, run: TaskRun, progress: Progress, generation: int, now: Millis
) -> TaskRun:
    """A task run whose worker has told its progress, and its newest checkpoint generation."""
    if generation <= run.generation:
        return replace(run, progress=progress)
    work_ms = run.work_ms
    if run.state is RunState.RUNNING:
        work_ms += worked_ms(state, run, now)
    stored = Stored(progress.steps, work_ms)
    return replace(run, progress=progress, generation=generation, stored=stored)


def rolled_back(state: Records, run: TaskRun) -> TaskRun:
    """A task run whose attempt is over, with no more work done than the next one resumes from.

    That is what its newest checkpoint holds. A gang resumes from one generation, so there it is the
    newest of all members. A program with a `checkpoint_interval` may have stored later ones by
    itself before its worker could tell: it loses one interval at most.

    Args:
        state: Where its gang is looked up.
        run: With all that it has done, be it stored or not.
    """
    job = state.jobs[run.job]
    group = [run, *crew(state, run.job)] if job.is_gang else [run]
    newest = max(group, key=lambda it: it.generation if it.stored is not None else 0)
    stored = newest.stored
    if stored is None or not newest.generation or job.forked:
        return run
    steps, work_ms = stored.steps, stored.work_ms
    if every_ms := job.spec.restarts.checkpoint_interval_ms:
        steps = max(steps, int(run.progress.steps - run.progress.rate * every_ms / 1000))
        work_ms = max(work_ms, run.work_ms - every_ms)
    progress = replace(run.progress, steps=min(run.progress.steps, steps))
    return replace(run, progress=progress, work_ms=min(run.work_ms, work_ms))
