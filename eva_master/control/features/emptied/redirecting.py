"""Tasks that await an empty instance, or are on their way to one that is ready later, go to it."""

from __future__ import annotations

from collections.abc import Collection

from eva_master.control.context import Context
from eva_master.control.features.emptied.fitting import headed
from eva_master.control.features.emptied.memory import EmptiedMemory
from eva_master.model.records import TaskRun
from eva_wire.values.ids import InstanceId
from eva_wire.values.states import RunState


def redirect(context: Context, partition: str, closed: Collection[InstanceId]) -> None:
    """Move task runs that await an instance, or would wait for a boot, to instances left empty.

    The booting instance is empty then.

    Args:
        context: Context of the control loop.
        partition: The partition of the adopted plan.
        closed: Instances that are kept for other tasks.
    """
    state = context.state
    for name in [name for name, _ in context.memory(EmptiedMemory).of(partition)]:
        if name in closed or not state.can_place(name):
            continue
        if state.places.targeting(name) or state.occupants(name):
            continue
        if comers := _comers(context, name):
            for run in comers:
                context.retarget(run, name)
            continue
        booting = max(
            headed(context, state.instances[name]),
            key=lambda it: _urgency(context, it),
            default=None,
        )
        for run in () if booting is None else state.places.coming(booting):
            context.retarget(run, name)


def _comers(context: Context, instance: InstanceId) -> list[TaskRun]:
    """Task runs that await an instance, if they still run where they began to await it."""
    awaited, state = context.memory(EmptiedMemory).awaited.get(instance), context.state
    comers: list[TaskRun] = []
    if awaited is None:
        return comers
    for name, place in awaited.runs:
        run = state.runs.get(name)
        if run is None or run.state is not RunState.RUNNING:
            return []
        if place is None or not place == run.instance == run.target:
            return []
        others = (*state.occupants(place), *state.places.targeting(place))
        if any(other.id not in awaited.beside for other in others):
            return []
        comers.append(run)
    return comers


def _urgency(context: Context, booting: InstanceId) -> tuple[int, int]:
    jobs = [context.state.jobs[run.job] for run in context.state.places.coming(booting)]
    priority = context.state.dependencies.priority
    return max((priority(job), -job.submitted_ms) for job in jobs)
