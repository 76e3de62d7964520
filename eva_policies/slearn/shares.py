"""Weight of a task in the share of its queue: its dominant resource."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from eva_master.model.job import TaskSpec
from eva_master.model.planning.snapshot import InstanceView, RunView
from eva_master.model.resources import NOTHING, Resources
from eva_master.model.values import alike, replace, sameness
from eva_policies.slearn.queues import Queued
from eva_wire.values.ids import JobId

_PARTS = 1_000_000_000
"""Shares are told in so many parts of all instances."""


def weighed(
    queued: Sequence[Queued],
    runs: Mapping[JobId, Sequence[RunView]],
    views: Sequence[InstanceView],
) -> list[Queued]:
    """The jobs with the weight of one of their tasks, unless all weights are equal.

    The weight is the task's largest share of a resource of all instances together: a queue of tasks
    with a GPU each holds more than one of as many tasks with a CPU where GPUs are fewer.

    Args:
        queued: Jobs in their queues.
        runs: Their task runs.
        views: The instances that the queues share.
    """
    offerings = [view.offering for view in views]
    kinds = [(offering.type, count) for offering, count in alike(offerings)]
    whole = NOTHING
    for kind, count in kinds:
        whole += kind.capacity.times(count)
    families = tuple(dict.fromkeys(kind.family for kind, _ in kinds))
    dominant: dict[object, int] = {}
    each = []
    for entry in queued:
        tasks = {sameness(run.task): run.task for run in runs.get(entry.job.id, ())}
        for key, task in tasks.items():
            if key not in dominant:
                dominant[key] = _dominant(task, families, whole)
        each.append(max((dominant[key] for key in tasks), default=1))
    if len({*each}) < 2:
        return list(queued)
    return [replace(entry, each=size) for entry, size in zip(queued, each, strict=True)]


def _dominant(task: TaskSpec, families: Iterable[str], whole: Resources) -> int:
    needs = dict(task.demand)
    need = next((needs[family] for family in needs if family in families), None)
    if need is None:
        return 1
    parts = (
        (need.gpus, whole.gpus),
        (need.milli_cpus, whole.milli_cpus),
        (need.memory_mib, whole.memory_mib),
        (need.disk_mib, whole.disk_mib),
    )
    return max([1, *(asked * _PARTS // amount for asked, amount in parts if amount)])
