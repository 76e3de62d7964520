"""Moves to an instance that boots are withdrawn when a task ends that was to come there too.

An instance is launched for all that is to be on it. Without one of its tasks it may be too dear for
the others, which run elsewhere until it is ready. So they are to stay where they are, and the next
plan decides anew: the instance is there for it, empty and without another launch.
"""

from __future__ import annotations

from eva_master.control.context import Context
from eva_master.control.features.emptied.memory import Comers, EmptiedMemory
from eva_master.control.state.records import crew
from eva_master.model.records import TaskRun
from eva_wire.values.ids import InstanceId
from eva_wire.values.states import RunState

_NOBODY = Comers((), frozenset())


def look(context: Context) -> bool:
    """Withdraw moves to instances that one of their tasks has left; whether there are any.

    Args:
        context: The present one.
    """
    deserted, withdrawn = context.memory(EmptiedMemory).deserted, False
    while deserted:
        name, _ = deserted.popitem()
        comers = context.state.places.targeting(name)
        if not _may_be_empty(context, name) or not comers:
            continue
        if all(_may_stay(context, run) for run in comers):
            for run in comers:
                context.retarget(run, run.instance)
            # The instance stays until a plan is adopted that saw it empty.
            context.memory(EmptiedMemory).awaited[name] = _NOBODY
            context.plan_wanted = withdrawn = True
    return withdrawn


def _may_be_empty(context: Context, name: InstanceId) -> bool:
    """Whether an instance boots, and plans made at any time decide what comes there."""
    if name not in context.memory(EmptiedMemory).booting:
        return False
    instance, partitions = context.state.instances[name], context.settings.partitions
    home = partitions.home(instance.partition)
    grid_ms = home.round_grid_ms if partitions.divided else context.settings.round_grid_ms
    return not grid_ms and not instance.stands and instance.takes_tasks


def _may_stay(context: Context, run: TaskRun) -> bool:
    """Whether a task run runs elsewhere, nothing else comes there, and its gang moves with it."""
    state, place = context.state, run.instance
    if run.state is not RunState.RUNNING or place is None or not state.can_stay(place):
        return False
    home, job = state.instances[place], state.jobs[run.job]
    if not home.takes_tasks or job.buys.kept or state.places.coming(place):
        return False
    members = crew(state, job.id) if job.is_gang else ()
    return all(mate.target in (mate.instance, run.target) for mate in members)
