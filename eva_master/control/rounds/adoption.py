"""A checked plan becomes the desired state."""

from __future__ import annotations

from eva_master.control import suspending
from eva_master.control.context import Context
from eva_master.control.features.elastic import resizing
from eva_master.control.features.pools import filling
from eva_master.control.features.replicas import settling
from eva_master.control.measure import learn
from eva_master.control.planning.validate_plan import Decision
from eva_master.control.rounds.launched_disks import launched
from eva_master.model.catalog import on_demand_price
from eva_master.model.records import Instance
from eva_master.model.values import replace
from eva_wire.values.ids import InstanceId
from eva_wire.values.states import InstanceState


def adopt(context: Context, decision: Decision, partition: str) -> dict[int, InstanceId]:
    """Make a checked plan the desired state.

    Args:
        context: Of this turn.
        decision: The checked plan.
        partition: The partition of the plan, to which its new instances belong.

    Returns:
        The names of new instances, by their keys in the plan.
    """
    state = context.state
    names: dict[int, InstanceId] = {}
    pools = decision.pools if decision.launches else ()
    bought_for = {key: pool for pool in pools for key in pool.members if isinstance(key, int)}
    offerings = launched(state, decision)
    for launch in decision.launches:
        pool = bought_for.get(launch.key)
        names[launch.key] = InstanceId(f"i{state.count(instances=1).instances:05d}")
        offering = offerings[launch.key]
        context.put_instance(
            Instance(
                id=names[launch.key],
                offering=replace(offering, unavailable_until=None, why_unavailable=""),
                history=((InstanceState.LAUNCHING.value, int(context.now)),),
                requested_ms=context.now,
                reason=launch.reason if pool is None else pool.reason,
                pool="" if pool is None else pool.name,
                partition=partition,
                on_demand=on_demand_price(state.catalog, offering),
            )
        )
    for entry in decision.sizes:
        resizing.adopt(context, entry)
    for run, where in decision.places:
        target = names[where] if isinstance(where, int) else where
        context.retarget(state.runs[run], target)
    for run, reason in decision.holds:
        held = state.runs[run]
        if held.waiting_for != reason:
            if held.instance is None and held.target is None:
                context.explain(held, reason)
            else:
                context.put_run(replace(held, waiting_for=reason))
            first = not held.waiting_for
            if first and context.settings.profile and learn.unprofiled(state, held):
                context.plan_wanted = True  # without room of its own it may be packed
    for suspend in decision.suspends:
        suspending.by_plan(context, suspend)
    _adopt_more_runs(context, decision, names)
    _leave_room(context, {where for _, where in decision.places if isinstance(where, str)})
    filling.adopt(context, partition, decision.pools, decision.lines, names)
    for job, indexes in decision.pilots:
        filling.choose(context, job, indexes)
    return names


def _leave_room(context: Context, places: set[InstanceId]) -> None:
    """Turn tasks back from room that is taken after all, and keep jobs alone that are to be alone.

    A job that is to be kept off spot instances stays on one if it finds no other place, though the
    plan took its room for free.
    """
    state, wanted = context.state, context.plan_wanted
    for place in sorted(places):
        if not any(state.jobs[run.job].buys.kept for run in state.places.targeting(place)):
            continue
        for comer in context.must_turn_back(place):
            context.turn_back(comer, place)
    context.plan_wanted = wanted  # the next plan would be the same


def _adopt_more_runs(context: Context, decision: Decision, names: dict[int, InstanceId]) -> None:
    """The extra runs of tasks that end and begin."""
    for retired in decision.retires:
        settling.retire(context, retired)
    for extra in decision.extras:
        target = names[extra.on] if isinstance(extra.on, int) else extra.on
        settling.begin(context, context.state.runs[extra.run], target, extra.reason)
