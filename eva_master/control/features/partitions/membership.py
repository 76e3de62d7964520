"""Which partition jobs and instances belong to, and how a job moves to another one."""

from __future__ import annotations

from dataclasses import replace

from eva_master.control.context import Context
from eva_master.control.measure import ledger, remaining
from eva_master.control.planning import arriving, lasting_limits
from eva_master.control.state.records import Records
from eva_master.model.actions import Reply
from eva_master.model.catalog import Catalog
from eva_master.model.events import MoveRequested
from eva_master.model.fleet.partitions import Partition, Partitions
from eva_master.model.job import JobSpec, different
from eva_master.model.records import Job, TaskRun
from eva_master.packing.configuration.unplaced_reason import why_unplaced
from eva_wire.values.bounds import JobKind
from eva_wire.values.errors import EvaError, LimitExceeded, NotAuthorised, NotFound, Unplaceable
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.states import TERMINAL_RUN, JobState


def placed(context: Context, spec: JobSpec) -> JobSpec:
    """A job that is submitted, with the partition that it runs in."""
    partitions = context.settings.partitions
    if not partitions.divided or spec.partition:
        return spec
    return replace(spec, partition=chosen(context.state, partitions, spec, context.now))


def chosen(state: Records, partitions: Partitions, spec: JobSpec, now: Millis) -> str:
    """The partition of a job that names none."""
    expected = _expected_ms(state, spec, now) if partitions.ask_for_time else None
    return partitions.chosen(spec, expected)


def _expected_ms(state: Records, spec: JobSpec, now: Millis) -> int | None:
    """How long the longest task of a job takes alone, as stated or learned; `None` if unknown."""
    if spec.kind is JobKind.ARRAY:
        spec = spec.of_tasks(tuple(different(spec.tasks)))
    return remaining.of_spec(state, spec, now).longest_ms


def refusal(context: Context, spec: JobSpec) -> EvaError | None:
    """Why a job cannot be submitted to its partition, `None` if it can."""
    partitions = context.settings.partitions
    if not partitions.divided:
        return None
    if spec.partition not in partitions:
        return _unknown(context, spec.partition)
    partition = partitions.home(spec.partition)
    return _misfit(spec, partition, context.state.catalog) or _excess(context, spec, partition)


def _unknown(context: Context, name: str) -> NotFound:
    names = ", ".join(partition.name for partition in context.settings.partitions.parts)
    hint = f"known: {names}" if names else "this cluster is not divided"
    return NotFound(f"there is no partition {name!r}", hint=hint)


def _misfit(spec: JobSpec, partition: Partition, catalog: Catalog) -> Unplaceable | None:
    """Why one of the job's tasks has no instance type in the partition; `None` if all have."""
    sold = tuple(
        replace(offering, unavailable_until=None, limit=None)
        for offering in partition.sold(catalog)
        if offering.limit != 0
    )
    for task in {task.demand: task for task in different(spec.tasks)}.values():
        if why := why_unplaced(task.demand, sold, Millis(0)):
            return Unplaceable(
                f"the job cannot run in partition {partition.name}: {why}",
                hint="name another partition; see: eva partitions",
            )
    return None


def _excess(context: Context, spec: JobSpec, partition: Partition) -> LimitExceeded | None:
    sums, limits = context.state.tally.partitions.of(partition.name), partition.limits
    for what, count, most in (
        ("jobs", sums.jobs + 1, limits.jobs),
        ("tasks", sums.tasks + spec.size, limits.tasks),
    ):
        if most is not None and count > most:
            return LimitExceeded(
                f"with this job partition {partition.name} would have {count:,} unfinished {what},"
                f" and {most:,} are allowed (partitions.{partition.name}.limits.{what})",
                hint="submit it again when some have ended, name another partition, or have an "
                "operator raise the limit",
            )
    return None


# -- moving a job --------------------------------------------------------------------------------


def move(context: Context, event: MoveRequested) -> None:
    """Have a job run in another partition; one that is there, ending or over stays as it is."""
    job = context.state.jobs.get(event.job)
    error: EvaError | None = None
    if job is None:
        error = NotFound(f"there is no job {event.job}", hint="see: eva ls --all")
    elif job.state in (JobState.PENDING, JobState.RUNNING):
        home = context.settings.partitions.home(job.partition)
        if home.name != event.partition:
            error = _move_refusal(context, job, event)
            if error is None:
                _moved(context, job.id, event.partition)
    context.outbox.add(Reply(event.command, None if error else event.job, error, event.owner))


def _move_refusal(context: Context, job: Job, event: MoveRequested) -> EvaError | None:
    partitions = context.settings.partitions
    if event.partition not in partitions:
        return _unknown(context, event.partition)
    partition = partitions.home(event.partition)
    if not (event.operator or partition.admits(job.spec.owner)):
        return NotAuthorised(
            f"{job.spec.owner} may not run jobs in partition {partition.name}",
            hint="ask an operator to move it; see: eva partitions",
        )
    spec, catalog = job.spec, context.state.catalog
    return (
        _misfit(spec, partition, catalog)
        or lasting_limits.refusal(context.state, context.settings, spec, partition)
        or _excess(context, spec, partition)
    )


def _moved(context: Context, name: JobId, partition: str) -> None:
    """Move a job: stop its tasks as a suspending plan does, and plan anew."""
    job = context.state.jobs[name]
    if not job.waits:  # else no policy has seen it
        arriving.depart(context, job)
    job = replace(job, moved_to=partition)
    context.put_job(job)
    context.state.membership.unqueue(name)
    if not job.waits:
        arriving.arrive(context, job)
    for run in context.state.in_hand(name):
        if run.target is not None and run.state not in TERMINAL_RUN:
            _unplace(context, run, f"moves to partition {partition}")
    context.plan_wanted = True


# -- other settings than before ------------------------------------------------------------------


def follow_settings(context: Context) -> None:
    """Have every active job and live instance belong to a partition of the present settings.

    Members of a partition that no longer exists move to the default one for good: otherwise tasks
    could be on instances of another partition when its name comes back. Owned nodes are where the
    settings have them; tasks on a node that now belongs to another partition are stopped and
    planned anew.
    """
    state, partitions = context.state, context.settings.partitions
    for job in map(state.jobs.__getitem__, tuple(state.active)):
        if (home := partitions.home(job.partition).name) != job.partition:
            context.put_job(replace(job, moved_to=home))
    for instance in map(state.instances.__getitem__, tuple(state.live)):
        owned = instance.owned and instance.id in context.settings.nodes
        part = partitions.of_node(instance.id) if owned else partitions.home(instance.partition)
        if part.name != instance.partition:
            ledger.book(state, instance.id, context.now)
            context.put_instance(replace(instance, partition=part.name))
            for run in state.places.targeting(instance.id):
                if partitions.home(state.jobs[run.job].partition) is not part:
                    _unplace(context, run, f"{instance.id} is in partition {part.name} now")


def _unplace(context: Context, run: TaskRun, reason: str) -> None:
    """Have a task run stopped from a checkpoint, if it runs, and planned anew."""
    context.put_run(replace(run, target=None, fetched=None, waiting_for=reason, pool=""))
