"""Consequences of the end of an instance, for any cause."""

from __future__ import annotations

from eva_master.control.context import Context
from eva_master.control.measure import memory
from eva_master.model.records import Instance
from eva_wire.values.states import InstanceState


def remove(context: Context, instance: Instance) -> None:
    """Note that an instance is gone: nothing runs on it, and who was there starts elsewhere."""
    context.put_instance(instance.to(InstanceState.GONE, context.now))
    context.state.sessions.end(instance.id)
    context.outbox.forget(instance.id)
    context.abandon(instance.id)
    for run in context.state.occupants(instance.id):
        target = run.target if run.target and context.state.can_place(run.target) else None
        context.release(run, target=target, lost=True)
    memory.relax(context.state, instance, context.now)
    context.plan_wanted = True
