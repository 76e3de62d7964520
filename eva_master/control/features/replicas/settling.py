"""Tasks of arrays that have several runs at once: the first that succeeds is the task's.

Run 0 is the task's own. An extra run exists for as long as it has a place: it never waits for a
plan. While one is in hand, no plan moves any run of its task, and if the own run has lost its place
it waits for none. Every run has its own attempts, checkpoints and outputs.

Which run has won is written down with the event that tells of its success, so there is one winner,
whatever comes later. All others are stopped. If an extra run has won, its outputs are put in the
task's place once no other run can write there any more; until then the job does not end.
"""

from __future__ import annotations

from collections.abc import Sequence

from eva_master.control.context import Context
from eva_master.control.features.arrays import failing
from eva_master.control.features.forks import copies
from eva_master.control.features.forks.letting_go import let_go
from eva_master.control.features.replicas import outputs
from eva_master.model.planning.plan import Retire
from eva_master.model.records import Failure, Job, TaskRun
from eva_master.model.values import replace
from eva_wire.values.ids import InstanceId, run_id
from eva_wire.values.states import TERMINAL_RUN, JobState, RunState

LOST = "it lost its place"
"""Why an extra run is over whose instance has gone, or which was to leave it."""


def begin(context: Context, own: TaskRun, target: InstanceId, reason: str) -> None:
    """Give a task one more run, as a plan says that was checked against the present."""
    if context.state.jobs[own.job].spec.forked:
        copies.place(context, own, target, reason)
        return
    number = own.replicas + 1
    context.add_run(
        TaskRun(
            id=run_id(own.job, own.index, number),
            job=own.job,
            index=own.index,
            history=((RunState.WAITING.value, int(context.now)),),
            target=target,
            why=reason,
        )
    )
    context.put_run(replace(own, replicas=number))


def retire(context: Context, entry: Retire) -> None:
    """Stop an extra run for good, likewise."""
    run = context.state.runs[entry.run]
    if context.state.jobs[run.job].spec.forked:
        copies.retire(context, run, entry.reason)
    else:
        let_go(context, run, entry.reason)


def winner(context: Context, run: TaskRun) -> TaskRun | None:
    """Another run of the same task that has succeeded."""
    others = context.state.runs.others(run)
    return next((other for other in others if other.state is RunState.SUCCEEDED), None)


def goes_on(context: Context, run: TaskRun) -> bool:
    """Whether another run of the same task may still succeed."""
    return any(other.state not in TERMINAL_RUN for other in context.state.runs.others(run))


def settle(context: Context, job: Job, run: TaskRun) -> bool:
    """Let go of a run that its task no longer needs; returns whether it is over or ending.

    A task without success fails with the last of its runs.
    """
    others = context.state.runs.others(run)
    if not others:
        return False
    won = next((other for other in (run, *others) if other.state is RunState.SUCCEEDED), None)
    if won is not None:
        for other in (run, *others):
            if other is not won and other.state not in TERMINAL_RUN:
                let_go(context, other, f"{won.id} has succeeded")
        outputs.place(context, job.id)
        return True
    if job.spec.forked:
        return copies.settle(context, job, run)
    if run.extra and run.state is RunState.WAITING and run.target is None:
        let_go(context, run, LOST)
    _fail_with_the_last(context, job, run, others)
    return context.state.runs[run.id].state in TERMINAL_RUN or job.state is JobState.ENDING


def _fail_with_the_last(
    context: Context, job: Job, run: TaskRun, others: Sequence[TaskRun]
) -> None:
    """Fail a task whose runs are all over, none of them with success."""
    runs = [context.state.runs[each.id] for each in (run, *others)]
    failed = [each for each in runs if each.state is RunState.FAILED]
    ends = job.state in (JobState.PENDING, JobState.RUNNING)
    if not failed or not ends or any(each.state not in TERMINAL_RUN for each in runs):
        return
    first = failed[0]
    failing.task_failed(context, job, Failure(first.exit_code or None, first.reason))
