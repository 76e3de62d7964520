"""Room that becomes free on members of pools is filled in the turn that hears of it."""

from __future__ import annotations

from collections.abc import Callable, Collection

from eva_master.control.alarms import Alarm
from eva_master.control.context import Context
from eva_master.control.features.pools.admission import Bar, bar, gives_room
from eva_master.control.lines.memory import LineMemory
from eva_master.control.standing.queue import Queue
from eva_master.control.standing.rooms import MemberRoom
from eva_master.control.standing.standing import Standing, named, queue_of
from eva_master.control.supply import availability, draining
from eva_master.model.planning.standing import Line, Pool
from eva_master.model.records import Drain, Instance, TaskRun
from eva_master.model.values import replace
from eva_master.packing.room import room_beside
from eva_wire.values.ids import InstanceId, JobId, RunId, run_id
from eva_wire.values.states import RunState


def adopt(
    context: Context,
    partition: str,
    pools: tuple[Pool, ...],
    lines: tuple[Line, ...],
    names: dict[int, InstanceId],
) -> None:
    """Make the pools and lines of a checked plan the present ones of a partition.

    Members that are no longer stated are drained; members drained by a plan and stated again are
    taken back.
    """
    standing = context.memory(LineMemory).standings.of(partition)
    before = members_of(context, partition)
    if not (pools or lines or standing.pools or before):
        return
    pools, lines = named(pools, lines, names)
    context.state.membership.state(partition, pools, lines)
    standing_in = (pool for pool in pools if not pool.shared)
    members = {member: pool for pool in standing_in for member in pool.instances}
    for name in before:
        if name not in members:
            _leave(context, context.state.instances[name])
    for name, pool in members.items():
        instance = context.state.instances[name]
        if instance.pool != pool.name or instance.drain is not None:
            draining.book(context, instance)
            context.put_instance(replace(instance, pool=pool.name, drain=None))
            draining.tell(context, name)

    def waiting(job: JobId) -> Queue:
        runs = map(context.state.runs.__getitem__, context.state.tasks[job].touched)
        return queue_of(context.state.jobs[job], runs, context.now)

    standing.state(pools, lines, waiting, context.state.in_hand)
    for line in lines:
        for job, indexes in line.chosen:
            choose(context, job, indexes)


def choose(context: Context, job: JobId, indexes: Collection[int]) -> None:
    """Choose some tasks of an array as pilots, whose run times are measured for the others."""
    state = context.state
    touched = map(state.runs.__getitem__, state.tasks[job].touched)
    if state.finished_tasks.choose(state.jobs[job], indexes, touched):
        state.view_cache.job_changed(job)


def members_of(context: Context, partition: str) -> tuple[InstanceId, ...]:
    """The instances that stand in pools of a partition."""
    standing = context.state.membership.standing
    if not context.settings.partitions.divided:
        return tuple(standing)
    return tuple(name for name in standing if _is_of(context, name, partition))


def has_members(context: Context, partition: str) -> bool:
    """Whether any instance stands in a pool of a partition."""
    return any(_is_of(context, name, partition) for name in context.state.membership.standing)


def _is_of(context: Context, name: InstanceId, partition: str) -> bool:
    instance = context.state.instances[name]
    return context.settings.partitions.home(instance.partition).name == partition


def _leave(context: Context, instance: Instance) -> None:
    """An instance is in no pool any more: it is drained, unless it stays for another reason.

    An owned node does, and an empty member that a plan has given tasks to: it is an ordinary
    instance from now on.
    """
    taken_over = context.state.places.coming(instance.id) and not context.state.occupants(
        instance.id
    )
    if instance.owned or taken_over:
        draining.book(context, instance)
        context.put_instance(replace(instance, pool=""))
    else:
        draining.begin(context, instance, Drain(f"left the pool {instance.pool}"))


_Placed = Callable[[Context, TaskRun], TaskRun]


def fill(context: Context, placed: _Placed) -> bool:
    """Give a waiting task room that is free; returns whether there was one.

    Its attempt is written down with it, or when its job converges, which is in the same turn. Until
    then nothing else is filled, so that what it takes is known.

    Args:
        context: The state of this turn.
        placed: Returns a waiting task run that was given its place, with its attempt if it may
            start.
    """
    if context.closing_down:
        return False
    for partition, standing in context.memory(LineMemory).standings.items():
        if _fill(context, partition, standing, placed):
            return True
    return False


def _fill(context: Context, partition: str, standing: Standing, placed: _Placed) -> bool:
    admissions: dict[JobId, bool] = {}

    def admitted(job: JobId) -> bool:
        if job not in admissions:
            admissions[job] = _admitted(context, partition, job)
        return admissions[job]

    head = standing.next(lambda instance: _room(context, standing, instance), admitted, context.now)
    if head is None:
        return False
    run = context.state.runs[run_id(head.job, head.index)]
    standing.taken.add(run.id)
    context.memory(LineMemory).rooms_left[head.instance] -= 1
    pool = standing.pool_of[head.instance]
    run = replace(run, target=head.instance, fetched=None, pool=pool)
    context.put_run(placed(context, run))
    return True


def look(context: Context, name: RunId) -> None:
    """A task of an array has changed, or may start since the time has come."""
    run = context.state.runs.get(name)
    if run is None:
        return
    if run.extra or run.state is RunState.WAITING:  # else that it does not wait was noted
        context.memory(LineMemory).follow(context, run)
    if run.extra or not run.in_hand:  # else no task may start for it that could not before
        context.memory(LineMemory).standings.touch_job(run.job)


def _room(context: Context, standing: Standing, name: InstanceId) -> MemberRoom | None:
    """Free room on a member where a task could start at once."""
    state = context.state
    instance = state.instances.get(name)
    if instance is None or not gives_room(instance, connected=name in state.sessions):
        return None
    if not instance.pool and name not in standing.shared:
        return None
    kind = instance.offering.type
    free = room_beside(instance.offering, state.company.taken(name))
    if coming := state.places.coming(name):
        free = free - state.demand(coming, instance)
    return MemberRoom(standing.pool_of[name], kind.family, free)


def _admitted(context: Context, partition: str, name: JobId) -> bool:
    """Whether a waiting task of a job may start now, in its line's partition."""
    state, settings = context.state, context.settings
    job = state.jobs.get(name)
    if job is None:
        return False
    tasks = state.tasks.get(name)
    barred = bar(
        state,
        settings,
        settings.partitions.home(partition),
        job,
        context.now,
        placeable=0 if tasks is None else tasks.placeable(job),
        held_back=lambda: availability.held_back(context, name),
    )
    if barred is Bar.BACKOFF:
        context.alarms.at(job.not_before_ms, Alarm.job(name))
    elif barred is Bar.QUOTA:
        context.memory(LineMemory).over_quota.setdefault(job.spec.tenant, set()).add(job.id)
    return barred is None
