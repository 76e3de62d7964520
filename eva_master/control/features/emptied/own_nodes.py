"""Tasks on their way to what is ready later go to own nodes that a plan leaves empty.

An own node costs nothing more. So a task that has a place on an instance which boots, or one that
others leave only for an instance which boots, starts on the node at once. The instance that boots
is empty then, and goes like any other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from eva_master.control.context import Context
from eva_master.control.features.emptied.memory import EmptiedMemory
from eva_master.control.planning import quota_use
from eva_master.model.catalog import base_family
from eva_master.model.records import Instance, TaskRun
from eva_wire.values.ids import InstanceId, RunId
from eva_wire.values.states import InstanceState, MarketRule, RunState


@dataclass(frozen=True, slots=True)
class _Unit:
    """Task runs that begin together, and where they were to begin."""

    runs: Sequence[TaskRun]
    place: InstanceId


def fill_own_nodes(
    context: Context,
    partition: str,
    closed: Collection[InstanceId],
    placed: frozenset[RunId],
) -> None:
    """Give owned nodes that a plan leaves empty to tasks that would have to wait for a boot.

    The most urgent unit comes first, then those that had a place beside it. A task goes only where
    it is no slower and no dearer, if its tenant may have the GPUs, and with its whole gang.

    Args:
        context: Context of the control loop.
        partition: The partition of the adopted plan.
        closed: Instances that are kept for other tasks.
        placed: Task runs that the plan has just placed although it saw the nodes.
    """
    nodes = [node for node in _empty(context, partition) if node.id not in closed]
    if not nodes:
        return
    units = [
        unit
        for unit in _units(context, partition)
        if placed.isdisjoint(run.id for run in unit.runs)
    ]
    waiting = sorted(units, key=lambda it: _urgency(context, it))
    for node in nodes:
        first = next(
            (unit for unit in waiting if _may_go(context, unit.runs, unit.place, node)), None
        )
        if first is None:
            continue
        going = list(first.runs)
        for unit in waiting:
            if unit is first or unit.place != first.place:
                continue
            if _may_go(context, [*going, *unit.runs], unit.place, node):
                going += unit.runs
        for run in going:
            context.retarget(run, node.id)
        waiting = [unit for unit in waiting if unit.runs[0] not in going]
        _stay(context, first.place)


def _empty(context: Context, partition: str) -> Iterator[Instance]:
    state, partitions = context.state, context.settings.partitions
    for name in state.live:
        node = state.instances[name]
        if node.pool or not node.owned or node.state is not InstanceState.READY:
            continue
        if partitions.home(node.partition).name != partition or not state.can_place(name):
            continue
        if (
            name in state.sessions
            and not state.places.targeting(name)
            and not state.occupants(name)
        ):
            yield node


def _units(context: Context, partition: str) -> Iterator[_Unit]:
    """Task runs of a partition that would have to wait for a boot, gangs whole."""
    state, partitions = context.state, context.settings.partitions
    gangs: defaultdict[str, list[TaskRun]] = defaultdict(list)
    for name in state.live:
        comers = state.places.coming(name)
        if not comers or not _is_late(context, name):
            continue
        for run in comers:
            job = state.jobs[run.job]
            ready = max(job.not_before_ms, run.not_before_ms) <= context.now
            if run.state is not RunState.WAITING or run.extra or not ready:
                continue
            if partitions.home(job.partition).name != partition or job.buys is MarketRule.SPOT:
                continue
            if job.is_gang:
                gangs[run.job].append(run)
            else:
                yield _Unit((run,), name)
    for runs in gangs.values():
        place = runs[0].target
        whole = len(runs) == sum(1 for _ in state.members(runs[0].job))
        if place is not None and whole and all(run.target == place for run in runs):
            yield _Unit(runs, place)


def _is_late(context: Context, place: InstanceId) -> bool:
    """Whether an instance boots, or its tasks leave it only for one that does."""
    booting = context.memory(EmptiedMemory).booting
    if place in booting:
        return True
    return any(run.target in booting for run in context.state.occupants(place))


def _urgency(context: Context, unit: _Unit) -> tuple[int, int, str]:
    job = context.state.jobs[unit.runs[0].job]
    return -context.state.dependencies.priority(job), job.submitted_ms, unit.runs[0].id


def _may_go(context: Context, runs: Sequence[TaskRun], place: InstanceId, node: Instance) -> bool:
    state, family = context.state, node.offering.type.family
    before = state.instances[place].offering
    if node.offering.price > before.price:
        return False
    for run in runs:
        speeds = state.reservation(run)
        if state.task(run).demand_on(family) is None:
            return False
        if speeds.speed_on(family) < speeds.speed_on(before.type.family):
            return False
    if not state.demand(runs, node).fits(node.offering.type.capacity):
        return False
    return _within_quotas(context, runs, node)


def _within_quotas(context: Context, runs: Sequence[TaskRun], node: Instance) -> bool:
    """Whether tenants may have what their tasks take on a node beside what they have now."""
    tenancy, state = context.settings.tenancy, context.state
    limited = tenancy.enforced(context.settings.partitions.home(node.partition))
    more: defaultdict[str, int] = defaultdict(int)
    for run in runs:
        need = state.task(run).demand_on(node.offering.type.family)
        more[state.jobs[run.job].spec.tenant] += 0 if need is None else need.gpus
    family = base_family(node.offering.type.family)
    return all(
        quota_use.share(state, tenancy, tenant).allows({family: gpus})
        for tenant, gpus in more.items()
        if gpus and tenant in limited
    )


def _stay(context: Context, place: InstanceId) -> None:
    """Have tasks stay that were to leave a place for those that came to it no more."""
    state = context.state
    if state.places.coming(place) or not state.can_place(place):
        return
    for run in state.occupants(place):
        alone = not state.jobs[run.job].spec.has_mates
        if alone and run.target is not None and run.target in context.memory(EmptiedMemory).booting:
            context.turn_back(run, run.target)
