"""Decision whether an instance that has emptied stays, for which task and until when.

An instance is terminated at once if no waiting task fits it, no plan is under way, and no plan has
left out a launch because this instance was about to empty. Otherwise the instance stays until a
plan is adopted that saw it empty. An instance left empty by that plan stays only while a waiting
task fits it, for at most the boot time of its type: after that time a new instance would serve as
well. An instance stays longer only if no new one can be had.
"""

from __future__ import annotations

from collections import Counter

from eva_master.control.alarms import Alarm
from eva_master.control.context import Context
from eva_master.control.features.emptied.fitting import headed, next_elsewhere, waiting_job
from eva_master.control.features.emptied.giving_way import GivenWay
from eva_master.control.features.emptied.memory import Emptied, EmptiedMemory
from eva_master.control.measure import ledger
from eva_master.control.planning.allowance import allowance
from eva_master.control.supply import draining
from eva_master.model.catalog import Offering
from eva_master.model.fleet.keeping import KeepReason
from eva_master.model.records import Instance
from eva_master.packing.room import may_buy_one
from eva_master.packing.valuation import delays
from eva_wire.values.ids import InstanceId, JobId, Millis


def stays(context: Context, instance: Instance) -> bool:
    """Whether an instance without a task stays for now; its end is checked again at that time.

    Args:
        context: Context of the control loop.
        instance: The instance; no task is on it or on its way to it.
    """
    if context.closing_down or instance.leaving_ms is not None:
        return False
    if _left_its_pool(instance) and _is_of_use(context, instance):
        instance = draining.free(context, instance)
    if not instance.takes_tasks:
        return False
    home = context.settings.partitions.home(instance.partition)
    emptied = context.memory(EmptiedMemory)
    new = instance.id not in emptied
    memory = emptied.note(instance.id, home.name, context.now)
    memory.kept = _kept(context, instance, memory)
    if memory.kept is None:
        return False
    context.plan_wanted = context.plan_wanted or new
    context.alarms.at(memory.kept.until_ms, Alarm.instance(instance.id))
    return True


def end(context: Context, instance: InstanceId) -> None:
    """Note that an instance is no longer empty, or is terminated."""
    memory = context.memory(EmptiedMemory).forget(instance)
    if memory is not None:
        context.state.tally.count_kept(
            ledger.kept(context.state, instance, memory.since_ms, context.now)
        )


def adopted(
    context: Context, partition: str, number: int, yielding: GivenWay, *, whole: bool = True
) -> None:
    """Note an adopted plan, and look at the instances that it leaves empty.

    Args:
        context: Context of the control loop.
        partition: The partition of the plan.
        number: Its number.
        yielding: Instances that make way for launches cut by limits, unless they are kept for a
            more urgent job.
        whole: Whether the policy was shown all waiting tasks; if not, an instance left empty may
            serve tasks that were not shown.
    """
    emptied = context.memory(EmptiedMemory)
    emptied.planning.discard(partition)
    for name, memory in emptied.of(partition):
        seen = whole and memory.asked is not None and memory.asked <= number
        if seen and memory.adopted_ms is None:
            memory.adopted_ms = context.now
            emptied.awaited.pop(name, None)
        if name in yielding.instances:
            memory.yields = yielding.priority >= _priority(context, memory)
        context.touch_instance(name)


def failed(context: Context, partition: str) -> None:
    """Note that a plan could not be made."""
    emptied = context.memory(EmptiedMemory)
    emptied.planning.discard(partition)
    for name, _ in emptied.of(partition):
        context.touch_instance(name)


def look(context: Context) -> bool:
    """Have those looked at again that are kept for a job that waits no more; whether there are."""
    stale = context.memory(EmptiedMemory).stale(context.state.unplaced)
    for name in stale:
        context.touch_instance(name)
    return bool(stale)


def _priority(context: Context, known: Emptied) -> int:
    """The priority of the job for which an instance is kept."""
    if known.kept is None or known.kept.job is None:
        return 0
    return context.state.dependencies.priority(context.state.jobs[known.kept.job])


def _kept(context: Context, instance: Instance, known: Emptied) -> KeepReason | None:
    partitions = context.settings.partitions
    home = partitions.home(instance.partition)
    grid_ms = home.round_grid_ms if partitions.divided else context.settings.round_grid_ms
    planned = known.adopted_ms is not None
    if known.yields or (planned and grid_ms):
        return None
    since = known.since_ms if known.adopted_ms is None else known.adopted_ms
    until = Millis(since + grid_ms + boot_ms(context, instance.offering))
    job = waiting_job(context, instance, planned=planned)
    elsewhere = next_elsewhere(context, instance, job)
    if context.now < until and not grid_ms:
        if job is not None and not elsewhere:
            return KeepReason(job, until, known.since_ms)
        if planned:
            return None
        # The one that boots goes in its place, which leaves as much of a limit to others.
        if (booting := next(headed(context, instance), None)) is not None:
            comer = context.state.places.coming(booting)[0].job
            return KeepReason(comer, until, known.since_ms, headed=True)
        memory = context.memory(EmptiedMemory)
        under_way = home.name in memory.planning or instance.id in memory.awaited
        return KeepReason(None, until, known.since_ms) if under_way and not elsewhere else None
    if job is None or elsewhere or not _is_scarce(context, instance, job):
        return None
    again = until if context.now < until else context.now + boot_ms(context, instance.offering)
    return KeepReason(job, Millis(again), known.since_ms)


def _left_its_pool(instance: Instance) -> bool:
    """Whether a plan has drained it by stating it no more, and nothing else speaks against it."""
    drain = instance.drain
    if drain is None or not instance.pool or instance.at_risk:
        return False
    return not (drain.ordered or drain.moves or drain.lacks)


def _is_of_use(context: Context, instance: Instance) -> bool:
    """Whether a task waits that fits an instance, or is headed for one like it that boots."""
    if waiting_job(context, instance, planned=True) is not None:
        return True
    return next(headed(context, instance), None) is not None


def boot_ms(context: Context, offering: Offering) -> int:
    """How long a new instance of an offering takes from its order until it is ready."""
    return delays.booting(context.state.learned.delays, offering.type).boot_ms


def _is_scarce(context: Context, instance: Instance, job: JobId) -> bool:
    """Whether a job could get no instance like this one after its end."""
    state, now, settings = context.state, context.now, context.settings
    sold = next((listed for listed in state.catalog if listed.id == instance.offering.id), None)
    if sold is None or not sold.available(now):
        return True
    if sold.limit is not None:
        others = (state.instances[name] for name in state.live if name != instance.id)
        if not may_buy_one(sold, Counter(other.offering.id for other in others)):
            return True
    if len(state.live) - 1 >= settings.limits.instances:
        return True
    tenant = state.jobs[job].spec.tenant
    budget = settings.tenancy.budgets.get(tenant)
    if budget is not None and ledger.month_of_tenant(state, tenant, now) >= budget:
        return True
    home = settings.partitions.home(instance.partition)
    allowed = allowance(state, state.tally.partitions.totals(), home, now)
    price = sold.price - instance.offering.price
    return settings.partitions.divided and bool(allowed.refusal(0, price))
