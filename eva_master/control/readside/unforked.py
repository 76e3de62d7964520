"""Why a job has no more forks than it has, for its user."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from eva_master.control.planning import scope
from eva_master.control.state.records import Records
from eva_master.model.fleet.partitions import Partitions
from eva_master.model.job import TaskSpec
from eva_master.model.records import Instance, Job
from eva_master.model.resources import NOTHING, Resources
from eva_master.packing.room import room_beside
from eva_wire.values.ids import InstanceId, Millis, run_id
from eva_wire.values.states import TERMINAL_JOB, InstanceState, RunState


def why_unforked(
    records: Records,
    partitions: Partitions,
    job: Job,
    waiting: Callable[[Job], bool],
    now: Millis,
) -> str:
    """The reason for which a job with too few forks gets no other one.

    Args:
        records: The cluster.
        partitions: Partitions of the cluster.
        job: The job.
        waiting: Whether any task of a job waits for a place.
        now: The time.

    Returns:
        One sentence; empty if the job has all of its forks, or may have none.
    """
    if not job.forked or job.state in TERMINAL_JOB:
        return ""
    in_hand = [run for run in records.in_hand(job.id) if run.target is not None]
    if len(in_hand) >= job.spec.forking.forks:
        return ""
    short = f"it has {len(in_hand)} of {job.spec.forking.forks} forks: "
    own = records.runs[run_id(job.id, 0)]
    if own.target is None:
        return short + "no other fork begins before fork 0 has a place"
    home = partitions.home(job.partition)
    stay = [
        instance
        for instance in map(records.instances.__getitem__, records.live)
        if (instance.owned or instance.stands) and partitions.home(instance.partition) is home
    ]
    if not stay:
        where = f" in partition {home.name}" if partitions.divided else ""
        return short + (
            f"others begin only on machines that stay, and there is none{where}: own nodes"
            " (`nodes`), or instances that stand in a pool"
        )
    resting = sorted(
        run.not_before_ms
        for run in records.runs.others(own)
        if run.state is RunState.WAITING and run.not_before_ms > now
    )
    if resting:
        return short + "one that failed is not tried again at once"
    task = records.task(own)
    reasons = Counter(
        _obstacle(records, partitions, job, task, instance=instance, waiting=waiting)
        for instance in stay
    )
    listing = ", ".join(f"{count} {why}" for why, count in reasons.items() if why)
    if reasons[""]:
        return short + "the next plan gives it another one, unless its tenant's quota is used up"
    number = "one machine stays" if len(stay) == 1 else f"{len(stay)} machines stay"
    return short + f"others begin only on machines that stay; {number}: {listing}"


def _obstacle(
    records: Records,
    partitions: Partitions,
    job: Job,
    task: TaskSpec,
    *,
    instance: Instance,
    waiting: Callable[[Job], bool],
) -> str:
    """The reason for which no fork begins on a machine that stays; empty if one may."""
    kind = instance.offering.type
    need = task.demand_on(kind.family)
    if job.id in {run.job for run in records.occupants(instance.id)}:
        return "with a fork of it already"
    if instance.state is not InstanceState.READY:
        return "not ready"
    if not instance.takes_tasks:
        return "that takes no new task"
    if need is None or not need.fits(kind.capacity):
        return "too small for a fork"
    free = room_beside(instance.offering, _taken(records, instance.id))
    if not need.fits(free):
        return "without room left"
    for name in records.active:
        other = records.jobs[name]
        mine = partitions.home(other.partition) is partitions.home(job.partition)
        waits = mine and name != job.id and scope.plans_job(records, other) and waiting(other)
        if waits and any(_fits(kind, instance, free) for kind in records.tasks.kinds(name)):
            return f"with room that {name} waits for"
    return ""


def _taken(records: Records, name: InstanceId) -> Resources:
    family = records.instances[name].offering.type.family
    needs = (records.task(run).demand_on(family) for run in records.occupants(name))
    return sum((need for need in needs if need is not None), NOTHING)


def _fits(task: TaskSpec, instance: Instance, free: Resources) -> bool:
    need = task.demand_on(instance.offering.type.family)
    return need is not None and need.fits(free)
