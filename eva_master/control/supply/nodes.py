"""Owned nodes: they come when they join, are never dismissed, and are gone once they are fenced.

Their agents hold leases, see `model.nodes`. While a node has a session it may hold one. After that
nobody renews it: so the time counts from when this control loop heard that the session had ended,
and after a restart from the restart, whatever was granted before.
"""

from __future__ import annotations

from eva_master.control.alarms import Alarm
from eva_master.control.context import Context
from eva_master.control.measure import ledger
from eva_master.control.supply import departures, draining
from eva_master.control.supply.memory import SupplyMemory
from eva_master.model.actions import Reply
from eva_master.model.events import NodeRequested, WorkerRegistered
from eva_master.model.fleet.nodes import NodeVerb, taken_for_empty_ms
from eva_master.model.records import Drain, Instance
from eva_master.model.resources import Resources
from eva_master.model.values import replace
from eva_wire.values.errors import EvaError, InvalidRequest, NotFound
from eva_wire.values.ids import Millis
from eva_wire.values.states import InstanceState


def registered(context: Context, event: WorkerRegistered) -> bool:
    """Take in a node whose agent opened a session; returns whether the node is owned.

    A node that was gone becomes a new instance of the same name: its earlier tasks have stopped.
    """
    node = context.settings.nodes.get(event.instance)
    record = context.state.instances.get(event.instance)
    live = record is not None and record.state is not InstanceState.GONE
    if node is None:
        return live and record is not None and record.owned
    short = _short(event, node.offering.type.capacity)
    if record is None or not live:
        joined = Instance(
            id=node.name,
            offering=replace(node.offering, limit=0),
            history=((InstanceState.UP.value, int(context.now)),),
            requested_ms=context.now,
            up_ms=context.now,
            reason="joined",
            partition=context.settings.partitions.of_node(node.name).name,
            fence_ms=node.fence_ms,
            drain=_drain(_kept(record), short),
        )
        context.put_instance(joined)
        ledger.open_account(context.state, joined)
        context.plan_wanted = True
    else:
        # The agent may still hold an earlier lease.
        fence_ms = max(record.fence_ms, node.fence_ms)
        if fence_ms != record.fence_ms:
            context.put_instance(replace(record, fence_ms=fence_ms))
            record = context.state.instances[record.id]
        drain = _drain(record.drain, short)
        if drain is None:
            draining.end(context, record)
        else:
            draining.begin(context, record, drain)
    return True


def _drain(before: Drain | None, short: str) -> Drain | None:
    """Why a node takes no tasks, now that it is known whether it has less than is stated."""
    if before is not None and before.ordered:
        return replace(before, lacks=short)
    return Drain(short, lacks=short) if short else None


def _short(event: WorkerRegistered, stated: Resources) -> str:
    """Why a node that has less than is stated gets no tasks; empty if it has enough."""
    if stated.fits(event.capacity):
        return ""
    return f"it has {event.capacity} and is stated with {stated}"


def _kept(before: Instance | None) -> Drain | None:
    """The drain that an operator had ordered for a node that was away and was not removed."""
    drain = None if before is None else before.drain
    return drain if drain is not None and drain.ordered else None


def converge(context: Context, instance: Instance) -> None:
    """Look after a node without a session: it is gone once it must have stopped its tasks."""
    if instance.id in context.state.sessions:
        context.memory(SupplyMemory).silent.pop(instance.id, None)
        return
    occupied = bool(context.state.occupants(instance.id))
    if context.closing_down and not occupied:
        gone(context, instance, "the cluster is shut down")
        return
    since = context.memory(SupplyMemory).silent.setdefault(instance.id, context.now)
    fenced_ms = taken_for_empty_ms(instance.fence_ms)
    limit = fenced_ms if occupied else min(fenced_ms, context.settings.lost_worker_ms)
    if context.now - since < limit:
        context.alarms.at(Millis(since + limit), Alarm.instance(instance.id))
        return
    silent = f"its worker has been silent for {limit / 1000:g} s"
    gone(context, instance, f"{silent}: its tasks have stopped" if occupied else silent)


def gone(context: Context, instance: Instance, reason: str) -> None:
    """Note that nothing runs on a node any more; its tasks start elsewhere."""
    departed = replace(instance, gone_ms=context.now, reason=reason)
    ledger.close_account(context.state, departed)
    departures.remove(context, departed)


def left(context: Context, instance: Instance, reason: str) -> None:
    """The agent of a node has signed off, with all of its tasks stopped as far as is known."""
    if not context.state.occupants(instance.id):
        gone(context, instance, reason)


def requested(context: Context, event: NodeRequested) -> None:
    """Carry out what an operator asks of a node; a repeated command has no further effect."""
    instance = context.state.instances.get(event.node)
    here = instance if instance and instance.owned and instance.id in context.state.live else None
    error = _refusal(context, event, here)
    if error is None and here is not None:
        match event.verb:
            case NodeVerb.DRAIN:
                draining.order(context, here, event.owner)
            case NodeVerb.RESUME:
                draining.end(context, here)
            case NodeVerb.GONE:
                gone(context, here, "gone, by an operator's word")
            case NodeVerb.REMOVE:
                gone(context, replace(here, drain=None), "removed by an operator")
    context.outbox.add(Reply(event.command, None, error, event.owner))


def _refusal(context: Context, event: NodeRequested, here: Instance | None) -> EvaError | None:
    name, verb = event.node, event.verb
    if here is None:
        if name not in context.settings.nodes:
            return NotFound(
                f"there is no owned node {name!r}",
                hint="owned nodes are listed by `eva nodes`, and declared under `nodes:` in the "
                "master's settings",
            )
        if verb in (NodeVerb.GONE, NodeVerb.REMOVE):
            return None
        return InvalidRequest(
            f"{name} is not here: its worker has not joined, or is gone",
            hint=f"make a token with `eva node token {name}`, and start a worker with it there",
        )
    if verb is NodeVerb.GONE and name in context.state.sessions:
        return InvalidRequest(
            f"{name} is not gone: its worker is connected",
            hint=f"to keep tasks away from it: eva node drain {name}",
        )
    if verb is NodeVerb.RESUME and here.drain is not None and here.drain.lacks:
        return InvalidRequest(
            f"{name} gets no tasks, since {here.drain.lacks}",
            hint=f"correct nodes.{name}.capacity in the master's settings and restart the master, "
            "or restore what the machine lacks and restart its worker",
        )
    if verb is NodeVerb.REMOVE and context.state.occupants(name):
        tasks = len(context.state.occupants(name))
        tasks_there = "1 task is" if tasks == 1 else f"{tasks} tasks are"
        return InvalidRequest(
            f"{tasks_there} on {name}, so it was not removed",
            hint=f"eva node drain {name}, and remove it when it is empty; if the machine is "
            f"switched off: eva node gone {name}",
        )
    return None
