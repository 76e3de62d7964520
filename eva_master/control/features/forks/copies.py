"""The runs of a forked job: fork 0 is the task's own run, the others are extra ones.

A fork above 0 is optional: a plan starts it where there is room, and may start it again after it
has lost its place. Work that a fork has not given in an epoch is lost with its place.
"""

from __future__ import annotations

from eva_master.control.context import Context
from eva_master.control.features.forks import tracker
from eva_master.control.features.forks.letting_go import let_go
from eva_master.model.forks.merging import NOT_BEGUN
from eva_master.model.records import Job, StopReason, TaskRun
from eva_master.model.values import replace
from eva_wire.values.ids import InstanceId, run_id
from eva_wire.values.states import TERMINAL_RUN, RunState

_LEAVES = "its instance is given up"
_MAKES_ROOM = "fork 0 stays on its instance"
ENDED_EARLY = "its program ended before the steps of its job were done"


def place(context: Context, own: TaskRun, target: InstanceId, reason: str) -> None:
    """Give a forked job one more fork, as a plan says that was checked against the present."""
    for number in range(1, context.state.jobs[own.job].spec.forking.forks):
        run = context.state.runs.get(run_id(own.job, 0, number))
        if run is None:
            _add(context, own, number, target, reason)
            return
        waits = run.state is RunState.WAITING and run.target is None
        if waits and run.not_before_ms <= context.now:
            context.put_run(replace(run, why=reason))
            context.retarget(context.state.runs[run.id], target)
            return


def _add(context: Context, own: TaskRun, number: int, target: InstanceId, reason: str) -> None:
    if own.replicas < number:
        context.put_run(replace(own, replicas=number))
    context.add_run(
        TaskRun(
            id=run_id(own.job, 0, number),
            job=own.job,
            index=0,
            history=((RunState.WAITING.value, int(context.now)),),
            target=target,
            why=reason,
        )
    )


def retire(context: Context, run: TaskRun, reason: str) -> None:
    """Take its place from a fork, as a plan says; it may be given another one later."""
    context.put_run(replace(run, target=None, fetched=None, why=reason))
    context.stop(context.state.runs[run.id], StopReason.SUSPEND)


def settle(context: Context, job: Job, run: TaskRun) -> bool:
    """Let go of a fork that its job needs no more; returns whether it is over, or is to be."""
    if run.state in TERMINAL_RUN:
        return False
    if not run.extra:
        _alone_there(context, run)
        return False
    if job.forked:
        place = run.target
        if place is not None and not context.state.can_place(place):
            retire(context, run, _LEAVES)  # no plan sees who is to finish there
        return False
    let_go(context, run, "its job goes on unforked")
    return True


def _alone_there(context: Context, own: TaskRun) -> None:
    """Retire forks from where fork 0 is to be: one may have come before its move was given up."""
    for fork in context.state.runs.others(own):
        if own.target is not None and fork.target == own.target:
            retire(context, fork, _MAKES_ROOM)


def ends_its_job(job: Job, run: TaskRun) -> bool:
    """Whether the success of a run is that of its job, which it is but for some forks."""
    total = job.spec.total_steps
    if not job.spec.forked or total is None:
        return True
    return tracker.may_succeed(job.merging or NOT_BEGUN, run.replica, run.attempt, total)


def succeeded(context: Context, run: TaskRun) -> None:
    """Count what a fork did last that has ended its job, if it had no others beside it."""
    job = context.state.jobs[run.job]
    if job.merging is None or job.spec.total_steps is None:
        return
    now = tracker.ended(job.merging, run.replica, run.attempt, job.spec.total_steps)
    if now != job.merging:
        context.put_job(replace(job, merging=now))
