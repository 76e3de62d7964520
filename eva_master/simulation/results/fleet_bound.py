"""How soon a fleet of owned nodes can be done with a trace at the earliest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from eva_master.model.fleet.nodes import OwnedNode
from eva_master.model.ids import MILLION, Family
from eva_master.model.resources import NOTHING, Resources
from eva_master.model.trace import Trace, TraceJob, TraceTask
from eva_master.packing.fleet.capacity import times
from eva_master.packing.lp.least_time import LeastTime, Need, least_time
from eva_master.simulation.scenario.submission import work_ms


def fleet_bound(trace: Trace, nodes: Iterable[OwnedNode]) -> LeastTime | None:
    """The lower bound of total time, as if all jobs were there at once and moved for nothing.

    Args:
        trace: What is to be done.
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
    """What a job needs; tasks of a gang that are alike are one need.

    Tasks of a gang that differ count by themselves: none of them is slower alone.
    """
    if job.is_array:
        for index, task in enumerate(job.tasks):
            yield _need(task, 1, work_ms(job, index), families)
        return
    for task, count in Counter(job.tasks).items():
        yield _need(task, count, work_ms(job), families)


def _need(task: TraceTask, count: int, work: float, families: list[Family]) -> Need:
    demands = dict(task.resolved(families))
    alone = {family: work * MILLION / task.speed_on(family) for family in demands}
    together = {family: times(demand, count) for family, demand in demands.items()}
    return Need(together, alone)
