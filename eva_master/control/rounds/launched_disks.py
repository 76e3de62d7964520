"""Disk that new instances are launched with, where that is decided at their launch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from eva_master.control.planning.validate_plan import Decision
from eva_master.control.state.records import PlanningRecords
from eva_master.model.catalog import InstanceType, Offering, with_disk
from eva_master.model.job import TaskSpec
from eva_master.model.values import replace
from eva_wire.values.ids import job_of, run_order


def launched(state: PlanningRecords, decision: Decision) -> dict[int, Offering]:
    """Offerings of the new instances of a plan as they are listed, with their disks, by key.

    Delays and prices of a snapshot's offerings are learned ones.
    """
    if not decision.launches:
        return {}
    listed = {offering.id: offering for offering in state.catalog}
    disks = disks_of_launches(state, decision)
    return {
        launch.key: with_disk(listed[launch.offering.id], disks[launch.key])
        for launch in decision.launches
    }


def disks_of_launches(state: PlanningRecords, decision: Decision) -> Counter[int]:
    """MiB of disk for the tasks of each new instance of a plan, by its key.

    A member of a pool is launched before its tasks are known: its disk is that of as many tasks as
    it has room for, of the job of the pool's lines that needs most.
    """
    disks: Counter[int] = Counter()
    machines = {
        launch.key: launch.offering.type
        for launch in decision.launches
        if launch.offering.type.sized_disk
    }
    if not machines:
        return disks
    extra = ((extra_run.run, extra_run.on) for extra_run in decision.extras)
    for run, where in (*decision.places, *extra):
        if isinstance(where, int) and where in machines:
            task = state.jobs[job_of(run)].spec.tasks[run_order(run)[2]]
            need = task.demand_on(machines[where].family)
            disks[where] += 0 if need is None else need.disk_mib
    for pool in decision.pools:
        for key in machines.keys() & set(pool.members):
            most = (_full(task, machines[key]) for task in _served(state, decision, pool.name))
            disks[key] = max(disks[key], *most, 0)
    return disks


def _served(state: PlanningRecords, decision: Decision, pool: str) -> Iterator[TaskSpec]:
    """Kinds of tasks that stand in lines for a pool."""
    for line in decision.lines:
        for job in line.jobs if pool in line.pools else ():
            yield from state.tasks.kinds(job)


def _full(task: TaskSpec, machine: InstanceType) -> int:
    """MiB of disk that as many tasks of a kind need as an instance has room for otherwise."""
    need = task.demand_on(machine.family)
    if need is None or not need.disk_mib or not need.fits(machine.capacity):
        return 0
    times = replace(need, disk_mib=0).times_in(machine.capacity) or 1
    return min(times * need.disk_mib, machine.capacity.disk_mib)
