"""How soon a fleet of owned nodes can be done with a trace at the earliest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from eva_lab.simulator.scenario.submission import work_ms
from eva_master.model.fleet.nodes import OwnedNode
from eva_master.model.resources import NOTHING, Resources
from eva_master.model.trace import Trace, TraceJob, TraceTask
from eva_master.packing.lp.least_time import LeastTime, Need, least_time
from eva_wire.values.ids import MILLION, Family


def fleet_bound(trace: Trace, nodes: Iterable[OwnedNode]) -> LeastTime | None:
    """The lower bound of total time, as if all jobs were there at once and moved for nothing.

    Args:
        trace: Work to do.
        nodes: All that it can be done on.

    Returns:
        The bound, or `None` if a task can run on none of the nodes.
    """
    capacity: dict[Family, Resources] = {}
    for node in nodes:
        machine = node.offering.type
        capacity[machine.family] = capacity.get(machine.family, NOTHING) + machine.capacity
    families = sorted(capacity)
    needs = [need for job in trace.jobs for need in _needs(job, families)]
    return least_time(needs, capacity)


def _needs(job: TraceJob, families: list[Family]) -> Iterator[Need]:
    """The needs of a job; tasks of a gang that are alike are one need.

    Tasks of a gang that differ count by themselves: none of them is slower alone. A gang that
    divides batches by speed is no faster than the fastest of them anywhere.
    """
    if job.is_array:
        for index, task in enumerate(job.tasks):
            yield _need(task, 1, work_ms(job, index), families)
        return
    kinds = Counter(job.tasks)
    for task, count in kinds.items():
        need = _need(task, count, work_ms(job), families)
        if job.split_batch and len(kinds) > 1:
            speeds = (kind.speed_on(name) for kind in kinds for name, _ in kind.resolved(families))
            least = work_ms(job) * MILLION / max(speeds, default=MILLION)
            need = replace(need, alone_ms=dict.fromkeys(need.alone_ms, least))
        yield need


def _need(task: TraceTask, count: int, work: float, families: list[Family]) -> Need:
    demands = dict(task.resolved(families))
    alone = {family: work * MILLION / task.speed_on(family) for family in demands}
    together = {family: demand.times(count) for family, demand in demands.items()}
    return Need(together, alone)
