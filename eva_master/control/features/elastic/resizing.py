"""Elastic gangs: how many members run, and the one move by which that changes.

The first so many members run, the others rest. While an attempt runs, those who are in it stop and
start together; who is to join has a target and waits there, and who is to leave has none. Once all
who join and move can start, the attempt stops as a whole, and the next one has the new size.
"""

from __future__ import annotations

from eva_master.control.context import Context
from eva_master.control.state.records import crew
from eva_master.model.planning.plan import Resize
from eva_master.model.records import Job, Sizing, TaskRun
from eva_master.model.values import replace
from eva_wire.values.states import HOLDING, RunState

_JOINING = "a member that was to join lost its place"
_DONE = "some members were done before others could join"
_GOING_ON = {RunState.RUNNING, RunState.SUCCEEDED}


def adopt(context: Context, entry: Resize) -> None:
    """Make a size the desired one, as a plan says that was checked against the present."""
    job = context.state.jobs[entry.job]
    _sized(context, job, Sizing(entry.members, entry.reason))


def _sized(context: Context, job: Job, sizing: Sizing) -> None:
    if job.sizing != sizing:
        context.put_job(replace(job, sizing=sizing))
    for run in context.state.in_hand(job.id):
        if run.index >= sizing.members and run.target is not None:
            context.put_run(replace(run, target=None, fetched=None, pool=""))


def attempt(context: Context, job: Job) -> list[TaskRun]:
    """Members of a gang's present attempt, or of its last one; empty before the first.

    A gang that is not elastic always has all its members.
    """
    members = context.state.members(job.id)
    if job.spec.elastic.least is None:
        return list(members)
    return [run for run in members if 0 < run.attempt == job.attempt]


def joining(context: Context, job: Job) -> list[TaskRun]:
    """Members that have a target and wait for the present attempt to make place for the next."""
    if job.spec.elastic.least is None or not _holds(context, job):
        return []
    present = crew(context.state, job.id)
    return [run for run in present if run.attempt != job.attempt and run.target is not None]


def joins(context: Context, run: TaskRun) -> bool:
    """Whether a waiting task run is one of these."""
    job = context.state.jobs[run.job]
    if job.spec.elastic.least is None or run.target is None or run.index >= job.members:
        return False
    return run.attempt != job.attempt and _holds(context, job)


def _holds(context: Context, job: Job) -> bool:
    return any(run.state in HOLDING for run in attempt(context, job))


def settle(context: Context, job: Job) -> list[TaskRun]:
    """Adapt an elastic gang's size to the outcome of its last change.

    A change that can no longer be completed is given up: the gang keeps its running size.

    Returns:
        Members that start or stop together now.
    """
    present = attempt(context, job)
    states = {run.state for run in present}
    if states == {RunState.SUCCEEDED}:
        return present
    if states.isdisjoint(HOLDING):
        _rest(context, job, present)
        return list(crew(context.state, job.id))
    if states <= _GOING_ON and job.members > len(present):
        if RunState.SUCCEEDED in states:
            _sized(context, job, Sizing(len(present), _DONE))
        elif len(joining(context, job)) < job.members - len(present):
            _sized(context, job, Sizing(len(present), _JOINING))
    return [context.state.runs[run.id] for run in present]


def _rest(context: Context, job: Job, present: list[TaskRun]) -> None:
    """Have those wait who were done in an attempt that starts over, whether they are in the next.

    Else a gang that shrinks would be stuck whose next members are those that were just done.
    """
    if job.failure is None and any(run.state is RunState.WAITING for run in present):
        for run in present:
            if run.state is RunState.SUCCEEDED:
                context.put_run(run.to(RunState.WAITING, context.now))
                context.plan_wanted = True
