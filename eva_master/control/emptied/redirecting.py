"""Tasks on their way to an instance that boots go to an empty one that is ready before it."""

from __future__ import annotations

from collections.abc import Collection

from eva_master.control.context import Context
from eva_master.control.emptied.fitting import headed
from eva_master.model.ids import InstanceId


def redirect(context: Context, partition: str, closed: Collection[InstanceId]) -> None:
    """Give what a plan leaves empty to tasks that would have to wait until an instance is ready.

    That instance is empty then.

    Args:
        context: The present one.
        partition: Whose plan was adopted.
        closed: Instances that are kept for others.
    """
    state = context.state
    for name in [name for name, _ in context.emptied.of(partition)]:
        if name in closed or not state.can_place(name):
            continue
        if state.targeting(name) or state.occupants(name):
            continue
        booting = max(
            headed(context, state.instances[name]),
            key=lambda it: _urgency(context, it),
            default=None,
        )
        for run in () if booting is None else state.coming(booting):
            context.retarget(run, name)


def _urgency(context: Context, booting: InstanceId) -> tuple[int, int]:
    jobs = [context.state.jobs[run.job] for run in context.state.coming(booting)]
    priority = context.state.dependencies.priority
    return max((priority(job), -job.submitted_ms) for job in jobs)
