"""Times and instances of tasks, and more of their metrics, for those who export a whole job."""

from __future__ import annotations

import asyncio

from eva_master.adapters.loop.gateway import LoopGateway
from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.adapters.rpc.server.views import metrics_within
from eva_master.model.records import TaskRun
from eva_master.ports.reading import Archive, JobRecord
from eva_wire.values.ids import InstanceId, Millis
from eva_wire.values.states import TERMINAL_RUN, RunState

_METRICS_BYTES = 8 << 10
"""Bytes of metrics of one task: a page of a thousand has half of the largest message."""


async def add_times(
    message: pb.Job, record: JobRecord, now: Millis, gateway: LoopGateway, archive: Archive
) -> None:
    """Add to the tasks of a message what a page with times has.

    Args:
        message: The message of a job.
        record: The job, with the runs that the message has as tasks.
        now: The present time.
        gateway: Has the newest model.
        archive: Has instances that the model has forgotten.
    """
    last = {run.id: run.places[-1][1] for run in record.runs if run.places}
    types = await _types([*dict.fromkeys(last.values())], gateway, archive)
    for task, run in zip(message.tasks, record.runs, strict=True):
        first = first_ran_ms(run)
        if first is not None:
            task.started_ms, task.ran_ms = first, run.ran_ms(now)
        if run.state in TERMINAL_RUN:
            task.finished_ms = run.since_ms
        if (instance := last.get(run.id)) is not None:
            task.last_instance, task.instance_type = instance, types.get(instance, "")
        task.metrics.update(metrics_within(run.progress.metrics, _METRICS_BYTES))


def first_ran_ms(run: TaskRun) -> int | None:
    """When a task run first ran, as far as that is on record; `None` if it never did."""
    starts = [at for state, at in run.history if state == RunState.RUNNING.value]
    if run.history[0][0] != RunState.WAITING.value or len(run.past) > len(starts):
        # The first stretches are no longer in the history.
        starts += [earlier.started_ms for earlier in run.past[:1] if earlier.started_ms]
    return min(starts, default=None)


async def _types(
    names: list[InstanceId], gateway: LoopGateway, archive: Archive
) -> dict[InstanceId, str]:
    """Types of instances by their names, those that are gone too."""
    instances = (await gateway.model()).instances
    types = {name: instances[name].offering.type.name for name in names if name in instances}
    if missing := [name for name in names if name not in types]:
        records = await asyncio.to_thread(archive.records_of_instances, missing)
        types |= {name: record.instance.offering.type.name for name, record in records.items()}
    return types
