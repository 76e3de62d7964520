"""Gangs that hold instances for some members while the cloud refuses those for the others.

Two of them may each hold half of a quota, and neither begins. So one gives its instances up after a
while: whichever stands behind another task that waits for such an instance. A gang that comes first
may be larger than the quota: while gangs gather nothing it gives its instances up for the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from eva_master.control.context import Context
from eva_master.control.features.gangs.memory import GangMemory
from eva_master.control.state.records import crew
from eva_master.model.records import Job, TaskRun
from eva_master.packing.shared_limits.limit import LimitUnit, Parts, gathers
from eva_master.packing.shared_limits.queue import wants
from eva_wire.values.ids import JobId
from eva_wire.values.states import InstanceState, RunState

HELD_MS = 5 * 60_000
"""For so long after a refusal a gang holds what it has, whatever else waits for it."""
Order = Callable[[], tuple[Parts, Sequence[LimitUnit]]]
"""Returns how the cluster is divided, and the units that wait for a place, in order."""


def refused(context: Context, jobs: Iterable[JobId], order: Order) -> None:
    """Check partly placed gangs when the cloud has refused an instance.

    Args:
        context: The state of this turn.
        jobs: Jobs of the tasks that were to go there.
        order: The units that wait; called only if a gang has held its instances for long.
    """
    half = context.memory(GangMemory).half_placed
    for name in jobs:
        half.setdefault(name, context.now)
    for name in [gang for gang in half if not _is_half(context, gang)]:
        del half[name]
    late = [name for name, since in half.items() if context.now - since >= HELD_MS]
    for name, first in _behind(context, late, *order()) if late else ():
        del half[name]
        for run in _held(context, name):
            context.retarget(run, None)
            context.explain(
                context.state.runs[run.id],
                f"gave its instance up for {first}, which is next: the cloud refuses the rest",
            )


def _is_half(context: Context, name: JobId) -> bool:
    """Whether a part of a gang that waits has instances, or has ordered them."""
    members = _waiting_members(context, name)
    placed = sum(_is_placed(context, run) for run in members)
    return any(run.target is not None for run in members) and placed < _least(context, members)


def _held(context: Context, name: JobId) -> list[TaskRun]:
    """Members of a gang that hold bought instances though others have none."""
    members = _waiting_members(context, name)
    placed = [run for run in members if _is_placed(context, run)]
    if len(placed) >= _least(context, members):
        return []
    return [run for run in placed if _is_bought(context, run)]


def _waiting_members(context: Context, name: JobId) -> list[TaskRun]:
    """Members of a gang of several; none once one of them has started."""
    state, job = context.state, context.state.jobs.get(name)
    if job is None or not job.spec.has_mates or name not in state.active:
        return []
    members = list(crew(state, name))
    return members if all(run.state is RunState.WAITING for run in members) else []


def _least(context: Context, members: list[TaskRun]) -> int:
    """How many members must be placed before a gang starts."""
    if not members:
        return 0
    return context.state.jobs[members[0].job].spec.elastic.least or len(members)


def _is_placed(context: Context, run: TaskRun) -> bool:
    """Whether a task run has an instance that the cloud has not only been asked for."""
    if run.target is None:
        return False
    return context.state.instances[run.target].state is not InstanceState.LAUNCHING


def _is_bought(context: Context, run: TaskRun) -> bool:
    assert run.target is not None
    instance = context.state.instances[run.target]
    return not (instance.owned or instance.stands)


def _behind(
    context: Context, names: Iterable[JobId], parts: Parts, waiting: Sequence[LimitUnit]
) -> Iterable[tuple[JobId, JobId]]:
    """Gangs that are to give up their places, each with the job that gets them next."""
    for name in names:
        held = _held(context, name)
        offerings = [context.state.instances[run.target].offering for run in held if run.target]
        gathering = gathers(context.now - min((run.since_ms for run in held), default=0))
        for unit in waiting:
            if unit.job.id == name:
                if gathering:
                    break
                continue
            if _is_ready(context.state.jobs[unit.job.id], context) and any(
                wants(parts, unit, offering) for offering in offerings
            ):
                yield name, unit.job.id
                break


def _is_ready(job: Job, context: Context) -> bool:
    return job.not_before_ms <= context.now
