"""The way out of an instance: no new tasks, those that are there finish or move, then it goes."""

from __future__ import annotations

from eva_master.control.context import Context
from eva_master.control.measure import ledger
from eva_master.model.actions import Reply
from eva_master.model.events import DrainRequested
from eva_master.model.records import Drain, Instance
from eva_master.model.values import replace
from eva_wire.values.errors import NotFound
from eva_wire.values.ids import InstanceId
from eva_wire.values.states import LIVE, InstanceState


def ordered(context: Context, event: DrainRequested) -> None:
    """Begin to drain an instance for an operator; one that is going already stays as it is.

    One that has gone by such an order may be named in a repeated one.
    """
    instance = context.state.instances.get(event.instance)
    gone = instance is None or instance.state is InstanceState.GONE
    if instance is None or (gone and (instance.drain is None or not instance.drain.ordered)):
        error = NotFound(f"there is no instance {event.instance}", hint="see: eva nodes")
        context.outbox.add(Reply(event.command, None, error, event.owner))
        return
    if instance.state in LIVE:
        order(context, instance, event.owner, moves=event.moves)
    context.outbox.add(Reply(event.command, None, owner=event.owner))


def order(context: Context, instance: Instance, owner: str, *, moves: bool = False) -> None:
    """Drain an instance by an operator's word; what else keeps tasks away from it stays so."""
    before = instance.drain
    moves = moves or (before is not None and before.moves)
    lacks = "" if before is None else before.lacks
    begin(context, instance, Drain(f"drained by {owner}", moves, ordered=True, lacks=lacks))


def begin(context: Context, instance: Instance, drain: Drain) -> None:
    """Have an instance take no new task and go once it is empty; harmless if it does already.

    Tasks that are on their way there stay where they are, or wait.
    """
    if instance.drain == drain:
        return
    book(context, instance)
    context.put_instance(replace(instance, drain=drain))
    for run in context.state.places.targeting(instance.id):
        if run.instance != instance.id:
            context.turn_back(run, instance.id)
    tell(context, instance.id)
    context.plan_wanted = True


def end(context: Context, instance: Instance) -> None:
    """Have a drained instance take tasks again; harmless if it does."""
    if instance.drain is None:
        return
    book(context, instance)
    context.put_instance(replace(instance, drain=None))
    tell(context, instance.id)
    context.plan_wanted = True


def free(context: Context, instance: Instance) -> Instance:
    """Have a former member of a pool be an ordinary instance, which takes tasks."""
    book(context, instance)
    context.put_instance(replace(instance, pool="", drain=None))
    tell(context, instance.id)
    context.plan_wanted = True
    return context.state.instances[instance.id]


def book(context: Context, instance: Instance) -> None:
    """Charge an instance as it stood until now."""
    ledger.book(context.state, instance.id, context.now)


def tell(context: Context, instance: InstanceId) -> None:
    """Policies see the tasks of an instance differently once it is drained, or no longer is."""
    for run in context.state.places.targeting(instance):
        context.state.view_cache.job_changed(run.job)
