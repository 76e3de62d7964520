"""Commands of users: submissions and cancellations, each answered once."""

from __future__ import annotations

from dataclasses import replace

from eva_master.control import limits, waiting
from eva_master.control.context import Context
from eva_master.control.features.deadlines import refusing
from eva_master.control.features.forks import forking
from eva_master.control.features.partitions import membership
from eva_master.control.features.results import removing
from eva_master.control.features.results.memory import ResultsMemory
from eva_master.control.features.tenants import admission
from eva_master.control.planning import arriving, lasting_limits
from eva_master.control.stopping import grace
from eva_master.model.actions import Reply
from eva_master.model.events import CancelRequested, JobSubmitted
from eva_master.model.job import JobSpec
from eva_master.model.records import Job, Outcome
from eva_wire.values.errors import DuplicateName, NotFound
from eva_wire.values.ids import JobId
from eva_wire.values.states import JobState


def submit(context: Context, event: JobSubmitted) -> None:
    """Add a job; a repeated submission makes no second job."""
    state, spec = context.state, membership.placed(context, event.spec)
    if (existing := state.commands.get((spec.owner, event.command))) is not None:
        context.outbox.add(Reply(event.command, existing, owner=spec.owner))
        return
    if (taken := _duplicate(context, spec)) is not None:
        context.outbox.add(Reply(event.command, None, taken, spec.owner))
        return
    allowed = context.settings.limits
    excess = limits.refusal(state.active_load, allowed, spec, operator=event.operator)
    if excess is not None:
        context.outbox.add(Reply(event.command, None, excess, spec.owner))
        return
    if (barred := admission.refusal(context.settings, spec)) is not None:
        context.outbox.add(Reply(event.command, None, barred, spec.owner))
        return
    if (misplaced := membership.refusal(context, spec)) is not None:
        context.outbox.add(Reply(event.command, None, misplaced, spec.owner))
        return
    spec = forking.applied(context, spec)
    home = context.settings.partitions.home(spec.partition)
    if (too_large := lasting_limits.refusal(state, context.settings, spec, home)) is not None:
        context.outbox.add(Reply(event.command, None, too_large, spec.owner))
        return
    gone = context.memory(ResultsMemory).removed
    unknown = waiting.refusal(context, spec, event.ended)
    unknown = unknown or removing.refusal_of_reader(context, spec, gone)
    if unknown is not None:
        context.outbox.add(Reply(event.command, None, unknown, spec.owner))
        return
    if (too_late := refusing.refusal(state, spec, context.now, context.settings)) is not None:
        context.outbox.add(Reply(event.command, None, too_late, spec.owner))
        return
    number = state.count(jobs=1).jobs
    job = Job(
        id=JobId(f"{spec.name}-{number}"),
        spec=spec,
        submitted_ms=context.now,
        history=((JobState.PENDING.value, context.now),),
        command=event.command,
    )
    context.put_job(job)
    if job.waits:
        waiting.in_vain(context, job.id, event.ended)
    else:
        arriving.arrive(context, job)
    context.outbox.add(Reply(event.command, job.id, owner=spec.owner))


def _duplicate(context: Context, spec: JobSpec) -> DuplicateName | None:
    """Refuse a name that an active job has if one of the two jobs is to be the only one of it.

    A unique job is the only active one of its name, so the oldest one tells of all.
    """
    active = context.state.names.first(spec.owner, spec.name)
    if active is None or not (spec.unique or context.state.jobs[active].spec.unique):
        return None
    unique = "the job file says" if spec.unique else f"{active} was submitted with"
    return DuplicateName(
        f"a job named {spec.name!r} of yours is active already: {active}; {unique} `unique: true`",
        hint=f"choose another name, or cancel it first: eva cancel {active}",
    )


def cancel(context: Context, event: CancelRequested) -> None:
    """Begin to end a job; one that is ending or over stays as it is.

    Only one that waits for outputs to be put in place gives them up: the store may fail for ever.
    Tasks that are stopping have less time from now on where that is wanted.
    """
    job = context.state.jobs.get(event.job)
    if job is None:
        error = NotFound(f"there is no job {event.job}", hint="see: eva ls --all")
        context.outbox.add(Reply(event.command, None, error, event.owner))
        return
    who = _canceller(job, event)
    if job.state in (JobState.PENDING, JobState.RUNNING):
        ending = job.to(JobState.ENDING, context.now)
        reason = f"cancelled by {who}"
        context.put_job(replace(ending, outcome=Outcome.CANCELLED, exit_code=130, reason=reason))
    elif job.state is JobState.ENDING and context.state.tasks[job.id].doubled.unplaced_outputs:
        reason = f"cancelled by {who} before all outputs were in place"
        context.put_job(replace(job, outcome=Outcome.CANCELLED, exit_code=130, reason=reason))
    _hurry(context, job.id, event)
    context.outbox.add(Reply(event.command, job.id, owner=event.owner))


def _canceller(job: Job, event: CancelRequested) -> str:
    """A word for the user that cancels a job: its owner, or an operator by name."""
    foreign = event.owner not in ("", job.spec.owner)
    return f"the operator {event.owner}" if foreign else "its owner"


def _hurry(context: Context, name: JobId, event: CancelRequested) -> None:
    """Give the tasks of a job that ends less time to stop, if its canceller wants or may so."""
    job = context.state.jobs[name]
    if job.state is not JobState.ENDING:
        return
    within = job.stop_within_ms
    if event.now:
        within = 0
    elif event.owner not in ("", job.spec.owner):
        recall = context.settings.limits.recall_grace_ms
        within = recall if within is None else min(within, recall)
    if within != job.stop_within_ms:
        context.put_job(replace(job, stop_within_ms=within))
        grace.shortened(context, context.state.in_hand(name))
