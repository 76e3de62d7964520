"""A journal that was put back from a backup: workers, cloud and object store know more than it.

Task runs may be under way that it does not know of, on instances that it knows or does not. Nothing
starts until all these are over, so that no task runs twice at a time. Names and numbers that were
given out after the backup are not given out again.
"""

from __future__ import annotations

from collections.abc import Iterable

from eva_master.control.context import Context
from eva_master.control.supply.memory import SupplyMemory
from eva_master.model.events import RunReport
from eva_master.model.records import Job, TaskRun
from eva_wire.values.ids import InstanceId, RunId
from eva_wire.values.states import RunState

_NAMES = 1_000
"""So many jobs, and so many instances, may have had names since the backup."""
_EVENTS = 1_000_000
"""So many events may have been told since the backup: readers go on after the last one."""
_ATTEMPTS = 500
"""So many attempts of a task may have begun since then."""


def begin(context: Context) -> None:
    """Take note of a restored journal, and await all instances that were there before.

    The journal keeps the mark and the time, so that the next start goes on with the same.
    """
    mark, counters = context.settings.restored_mark, context.state.counters
    if mark > counters.restored_mark:
        context.state.count(
            jobs=_NAMES,
            instances=_NAMES,
            events=_EVENTS,
            restored_ms=context.now - counters.restored_ms,
            restored_mark=mark - counters.restored_mark,
        )
    since = context.state.counters.restored_ms
    if since:
        memory, instances = context.memory(SupplyMemory), context.state.instances
        old = (name for name in context.state.live if instances[name].requested_ms <= since)
        memory.unheard.update(old)
        memory.unlisted = True


def predates(context: Context, job: Job) -> bool:
    """Whether a job was submitted before the journal was restored."""
    since = context.state.counters.restored_ms
    return since > 0 and job.submitted_ms <= since


def next_attempt(context: Context, job: Job, last: int, runs: Iterable[TaskRun]) -> int:
    """The number of the next attempt of some task runs, larger than all that were ever given out.

    Args:
        context: Context of the control loop.
        job: Their job.
        last: The number of the last attempt on record.
        runs: The task runs.
    """
    since = context.state.counters.restored_ms
    starts = (at for run in runs for name, at in run.history if name == RunState.STARTING)
    if predates(context, job) and max(starts, default=0) <= since:
        return last + _ATTEMPTS
    return last + 1


def why_nothing_starts(context: Context) -> str:
    """The reason for which nothing starts now; empty if things may start."""
    if not context.state.counters.restored_ms:
        return ""
    memory = context.memory(SupplyMemory)
    instances = {*memory.unheard, *memory.unwanted, *memory.foreign}
    if not instances and not memory.unlisted:
        return ""
    some = ", ".join(sorted(instances)[:3]) or "what the cloud lists"
    return f"the journal was restored from a backup; it waits until it has heard of {some}"


def awaits(context: Context, instance: InstanceId) -> bool:
    """Whether attempts on an instance are to end that the journal did not know of."""
    return instance in context.memory(SupplyMemory).foreign


def holds(context: Context, runs: Iterable[TaskRun]) -> bool:
    """Whether task runs may not start now; says why."""
    reason = why_nothing_starts(context)
    for run in runs if reason else ():
        if run.waiting_for != reason:
            context.explain(run, reason)
    return bool(reason)


def grace_ms(context: Context, instance: InstanceId, report: RunReport) -> int:
    """Time for an attempt that nobody wants: for one begun after the backup, that of its job.

    Nothing starts before it is over.
    """
    record = context.state.instances.get(instance)
    since = context.state.counters.restored_ms
    if not since or record is None or record.requested_ms > since:
        return 0
    attempts = context.memory(SupplyMemory).foreign.setdefault(instance, set())
    attempts.add((report.run, report.attempt))
    run = context.state.runs.get(report.run)
    return 0 if run is None else context.state.jobs[run.job].spec.restarts.grace_period_ms


def heard(context: Context, instance: InstanceId) -> None:
    """A worker lists all that runs on its instance."""
    memory = context.memory(SupplyMemory)
    if instance in memory.unheard or instance in memory.foreign:
        memory.unheard.discard(instance)
        memory.foreign.pop(instance, None)
        _look_again(context)


def stopped(context: Context, instance: InstanceId, run: RunId, attempt: int) -> None:
    """An attempt that the journal did not know of is over."""
    memory = context.memory(SupplyMemory)
    attempts = memory.foreign.get(instance, set())
    attempts.discard((run, attempt))
    if instance in memory.foreign and not attempts:
        del memory.foreign[instance]
        _look_again(context)


def listed(context: Context) -> None:
    """The cloud has listed all instances."""
    memory = context.memory(SupplyMemory)
    if memory.unlisted:
        memory.unlisted = False
        _look_again(context)


def _look_again(context: Context) -> None:
    if not why_nothing_starts(context):
        context.touch_everything()
