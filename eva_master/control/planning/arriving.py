"""Jobs that arrive stand at once in the lines that are open to them; plans are about them later."""

from __future__ import annotations

from collections.abc import Iterable

from eva_master.control.context import Context
from eva_master.control.lines.memory import LineMemory
from eva_master.control.measure import remaining
from eva_master.control.standing.standing import Standing, queue_of
from eva_master.model.planning.standing import Newcomers
from eva_master.model.records import Job
from eva_wire.values.ids import JobId


def arrive(context: Context, job: Job) -> None:
    """Make a job known to policies.

    The job counts as having arrived from then on. A plan is requested, unless all of its tasks get
    room from a line at once.
    """
    if join(context, job):
        context.memory(LineMemory).came.add(job.id)
    else:
        _seen(context, job)
        context.plan_wanted = True


def depart(context: Context, job: Job) -> None:
    """A job is there no more."""
    standing = _standing(context, job)
    if job.id in standing.joined:
        del standing.joined[job.id]  # no policy has ever seen it
    else:
        _left(context, job)


def join(context: Context, job: Job) -> bool:
    """Have a job stand in the lines that are open to it; returns whether there is one."""
    spec, standing = job.spec, _standing(context, job)
    if not any(line.open_to for line in standing.lines) or not spec.stands_in_line:
        return False
    task_ms = remaining.usual_ms(context.state, job)

    def takes(newcomers: Newcomers) -> bool:
        return newcomers.take(spec.latency, task_ms)

    tasks = context.state.tasks.get(job.id)
    touched = () if tasks is None else map(context.state.runs.__getitem__, tasks.touched)
    if not standing.join(job.id, queue_of(job, touched, context.now), takes):
        return False
    home = context.settings.partitions.home(job.partition).name
    context.state.membership.queue(home, job.id, standing.lines)
    return True


def show(context: Context, standing: Standing) -> frozenset[JobId]:
    """The jobs that policies see for the first time, of those that stand in lines already."""
    shown = frozenset(standing.joined)
    for name in standing.joined:
        _seen(context, context.state.jobs[name])
    standing.joined = {}
    return shown


def rejoin(context: Context, jobs: Iterable[JobId]) -> None:
    """Lines were stated anew by a plan that was not about some jobs: these join those again."""
    for name in jobs:
        job = context.state.jobs[name]
        if not join(context, job):
            del _standing(context, job).joined[name]
            _seen(context, job)
            context.plan_wanted = True


def _seen(context: Context, job: Job) -> None:
    """Count a job that policies can see from now on."""
    context.state.count(arrivals=1)
    home = context.settings.partitions.home(job.partition)
    if not home.default:
        context.state.tally.partitions.arrived(home.name)


def _left(context: Context, job: Job) -> None:
    """Count a job that policies could see so far."""
    context.state.count(completions=1)
    home = context.settings.partitions.home(job.partition)
    if not home.default:
        context.state.tally.partitions.left(home.name)


def _standing(context: Context, job: Job) -> Standing:
    return context.memory(LineMemory).standings.of(
        context.settings.partitions.home(job.partition).name
    )
