"""Offerings that are not bought for a while, and the reasons."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice

from eva_master.control.alarms import Alarm, Wake
from eva_master.control.context import Context
from eva_master.control.lines.memory import LineMemory
from eva_master.control.supply.boot_gate import BootGate
from eva_master.control.supply.memory import SupplyMemory
from eva_master.learning.boots import Boots, lost_scope, scopes
from eva_master.model.records import Instance
from eva_wire.values.ids import InstanceId, JobId, Millis, OfferingId
from eva_wire.values.states import InstanceState

PROVEN_MS = 60_000
"""An instance that ends this soon after a task began to run there may have ended for that."""


def refuse(context: Context, offerings: Iterable[OfferingId], until: Millis, why: str) -> None:
    """Have nothing of these offerings launched before a time, at which there is a plan again."""
    context.state.set_unavailable(offerings, until, why)
    context.alarms.at(until, Alarm(Wake.AVAILABILITY))


def never_registered(context: Context, instance: Instance) -> str:
    """Give up on an instance that is paid for and whose worker has not registered in time.

    Returns:
        Why it is given back, in words for the user.
    """
    limit = context.settings.register_timeout_ms
    what = f"did not register within {limit / 1000:g} s"
    _failed(context, instance, limit, f"the worker of {instance.id} {what}")
    return f"its worker {what}"


def note_end(context: Context, instance: Instance, reason: str, *, reclaimed: bool) -> None:
    """An instance ended without having been asked to; if no task ever ran on it, its boot failed.

    If one had just begun to, it may be what brought the instance down.

    Args:
        context: Of this turn.
        instance: As it was before.
        reason: The cloud's reason; empty if it gave none.
        reclaimed: Whether the cloud took it back for another customer.
    """
    registered = instance.ready_ms is not None or instance.id in context.state.sessions
    memory = context.memory(SupplyMemory)
    idle = instance.id in memory.unproven
    memory.unproven.discard(instance.id)
    ran_from = memory.proving.pop(instance.id, None)
    if reclaimed or instance.leaving_ms is not None or instance.at_risk:
        return
    if instance.state is InstanceState.TERMINATING:
        return
    if idle and instance.stands and _stood_ms(context, instance) >= PROVEN_MS:
        return  # nothing ran there since there was nothing to run
    about = f": {reason}" if reason else ""
    name = f"{instance.id} ({instance.offering.id})"
    if registered and not idle:
        ended = context.memory(SupplyMemory).silent.get(instance.id, context.now)
        if ran_from is not None and ended - ran_from < PROVEN_MS:
            why = f"{name} ended as soon as a task ran on it{about}"
            _lost(context, instance, _jobs(context, instance), why)
        return
    before = "a task ran on it" if registered else "its worker registered"
    why = f"{name} ended before {before}{about}"
    _failed(context, instance, context.settings.boot_backoff_ms, why)


def _stood_ms(context: Context, instance: Instance) -> int:
    """For how long an instance had been ready when it was heard of last."""
    if instance.ready_ms is None:
        return 0
    return context.memory(SupplyMemory).silent.get(instance.id, context.now) - instance.ready_ms


def gave_up(context: Context, instance: Instance, jobs: Collection[JobId], reason: str) -> None:
    """An instance is given back since tasks cannot run there; if none ever did, its boot failed.

    Unless they were tasks of one job, whose image or inputs may be too large for any such instance.
    """
    if instance.id not in context.memory(SupplyMemory).unproven:
        return
    context.memory(SupplyMemory).unproven.discard(instance.id)
    why = f"{instance.id} ({instance.offering.id}) was of no use: {reason}"
    if len(jobs) > 1:
        _failed(context, instance, context.settings.boot_backoff_ms, why)
    else:
        _lost(context, instance, jobs, why)


def unfit(context: Context, instance: Instance, reason: str) -> str:
    """Give up on an instance whose worker lets no task run: that counts as a failed boot.

    Returns:
        Why it is given back, in words for the user.
    """
    context.memory(SupplyMemory).unproven.discard(instance.id)
    why = f"{instance.id} ({instance.offering.id}) was of no use: {reason}"
    _failed(context, instance, context.settings.boot_backoff_ms, why)
    return reason


def registered(context: Context, instance: Instance) -> None:
    """A worker registered for the first time: who waited for that may be bought for."""
    context.memory(SupplyMemory).unproven.add(instance.id)
    if not context.state.boots.streaks:
        return
    boots = context.state.boots.registered(instance.offering, _jobs(context, instance))
    if boots != context.state.boots:
        _reopen(context, boots)


def worked(context: Context, instance: Instance) -> None:
    """A task runs on an instance, so booting such instances works."""
    memory = context.memory(SupplyMemory)
    if instance.id in memory.unproven:
        memory.unproven.discard(instance.id)
        memory.proving[instance.id] = context.now
        context.alarms.at(Millis(context.now + PROVEN_MS), Alarm.instance(instance.id))
    if not context.state.boots.streaks:
        return
    boots = context.state.boots.worked(instance.offering, _jobs(context, instance))
    if boots is not context.state.boots:
        _reopen(context, boots)


def outlived(context: Context, instance: Instance) -> None:
    """Look whether an instance has outlived the start of its first task for long enough."""
    ran_from = context.memory(SupplyMemory).proving.get(instance.id)
    if ran_from is not None and context.now - ran_from >= PROVEN_MS:
        del context.memory(SupplyMemory).proving[instance.id]
        proven(context, _jobs(context, instance))


def proven(context: Context, jobs: Iterable[JobId]) -> None:
    """Tasks of these jobs ran and their instances are there, so nothing speaks against them."""
    boots = context.state.boots.proven(tuple(jobs))
    if boots is not context.state.boots:
        _reopen(context, boots)


def paused_jobs(context: Context) -> list[JobId]:
    """Jobs for which nothing is bought now, since their boots have failed."""
    boots = context.state.boots
    if not boots.streaks:
        return []
    streaks = ((job, boots.of_job(job)) for job in context.state.active)
    return [job for job, streak in streaks if streak and streak.until_ms > context.now]


def held_back(context: Context, job: JobId) -> bool:
    """Whether a job's tasks take no room in a line now, since instances ended while they ran.

    The tasks are then tried one at a time, like those for which instances are bought.
    """
    streaks = context.state.boots.streaks
    streak = streaks.get(lost_scope(job)) if streaks else None
    if streak is None:
        return False
    if streak.until_ms > context.now:
        return True  # a plan then looks at lines anew
    targets = (run.target for run in context.state.in_hand(job) if run.target is not None)
    return any(_untried(context, name) for name in targets)


def held_back_jobs(context: Context) -> frozenset[JobId]:
    """The jobs whose tasks take no room in a line now; see `held_back`."""
    doubted = context.state.boots.doubted_jobs()
    return frozenset(job for job in doubted if held_back(context, job))


def gate(context: Context) -> BootGate:
    """The limits on purchases after failed boots."""
    state, now = context.state, context.now
    live = map(state.instances.__getitem__, state.live if state.boots.streaks else ())
    booting = frozenset(
        scope
        for instance in live
        if instance.ready_ms is None and instance.state is not InstanceState.TERMINATING
        # A boot that takes longer is not waited for.
        if now - instance.requested_ms < context.settings.boot_backoff_ms
        for scope in scopes(instance.offering)
    )
    doubtful = frozenset(
        lost_scope(run.job)
        for job in context.state.boots.suspect_jobs()
        for run in context.state.in_hand(job)
        if run.target is not None and _untried(context, run.target)
    )
    return BootGate(context.state.boots, booting | doubtful, context.now, context.state.wall)


def _untried(context: Context, name: InstanceId) -> bool:
    """Whether nothing has run for long enough on an instance to tell that it outlives it."""
    instance = context.state.instances[name]
    booting = instance.state in (InstanceState.LAUNCHING, InstanceState.UP)
    memory = context.memory(SupplyMemory)
    return booting or name in memory.unproven or name in memory.proving


def _lost(context: Context, instance: Instance, jobs: Collection[JobId], why: str) -> None:
    state = context.state
    boots = state.boots.of_jobs(state.active).failed(
        instance.offering,
        jobs,
        requested_ms=instance.requested_ms,
        now=context.now,
        pause_ms=context.settings.boot_backoff_ms,
        why=why,
        lost=True,
    )
    state.remember(boots)
    _tell(context, instance, jobs, why)


def _failed(context: Context, instance: Instance, pause_ms: int, why: str) -> None:
    state, offering, jobs = context.state, instance.offering, _jobs(context, instance)
    boots = state.boots.of_jobs(state.active).failed(
        offering,
        jobs,
        requested_ms=instance.requested_ms,
        now=context.now,
        pause_ms=pause_ms,
        why=why,
    )
    state.remember(boots)
    for listed in state.catalog:
        until = boots.until(listed)
        if until > (listed.unavailable_until or context.now):
            refuse(context, [listed.id], until, why)
    _tell(context, instance, jobs, why)


def _tell(context: Context, instance: Instance, jobs: Iterable[JobId], why: str) -> None:
    """Tell the jobs why, and have them planned again when something may be bought for them."""
    for run in context.state.places.targeting(instance.id):
        context.explain(run, why)
    for job in jobs:
        if (streak := context.state.boots.of_job(job)) is not None:
            context.alarms.at(streak.until_ms, Alarm(Wake.AVAILABILITY))


def _jobs(context: Context, instance: Instance) -> list[JobId]:
    """For whom an instance is there: the jobs of its tasks, or who is first in line for it."""
    jobs = sorted({run.job for run in context.state.places.targeting(instance.id)})
    if jobs or not instance.pool:
        return jobs
    home = context.settings.partitions.home(instance.partition)
    standing = context.memory(LineMemory).standings.of(home.name)
    lines = (line for line in standing.lines if instance.pool in line.pools)
    heads = (job for line in lines for job in line.jobs if job in context.state.unplaced)
    return list(islice(heads, 1))


def _reopen(context: Context, boots: Boots) -> None:
    """Allow purchases of offerings that are no longer suspected."""
    before = context.state.boots
    context.state.remember(boots)
    for listed in context.state.catalog:
        if listed.unavailable_until is not None and listed.unavailable_until == before.until(
            listed
        ):
            until = boots.until(listed)
            why = listed.why_unavailable if until else ""
            context.state.set_unavailable([listed.id], until or None, why)
    context.plan_wanted = True
