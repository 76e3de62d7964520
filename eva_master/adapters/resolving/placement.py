"""Checks whether any offering can hold a task, and what the nearest type lacks."""

from __future__ import annotations

from collections.abc import Sequence

from eva_master.model.catalog import Catalog, InstanceType, Offering
from eva_master.model.job import JobSpec, TaskSpec
from eva_master.model.resources import Resources
from eva_wire.values.bounds import JobKind


def unplaceable(task: TaskSpec, catalog: Catalog) -> str:
    """Explain why no instance can hold `task`.

    Returns:
        A sentence that names the nearest instance type and what it lacks; empty if some type
        holds the task.
    """
    candidates = [
        (offering.type, need)
        for offering in catalog
        if offering.limit != 0 and (need := task.demand_on(offering.type.family)) is not None
    ]
    if any(need.fits(machine.capacity) for machine, need in candidates):
        return ""
    if not candidates:
        return "the task can run on no family that is on sale"
    machine, need = min(candidates, key=_distance)
    lacks = _in_words(need.shortfall(machine.capacity))
    return f"no instance type can hold the task; the nearest, {machine.name}, lacks {lacks}"


def vcpus_needed(job: JobSpec | None, offerings: Sequence[Offering]) -> int | None:
    """VCPUs that a job takes at least of some types together, `None` if they do not hold it.

    A gang starts with all of its tasks, an array with one.
    """
    if job is None:
        return min(offering.type.capacity.milli_cpus for offering in offerings) // 1000
    tasks = job.tasks if job.kind is JobKind.GANG else job.tasks[:1]
    largest = total = 0
    for task in tasks:
        fits = [
            (offering.type.capacity.milli_cpus, demand.milli_cpus)
            for offering in offerings
            if (demand := task.demand_on(offering.type.family)) is not None
            and demand.fits(offering.type.capacity)
        ]
        if not fits:
            return None
        largest = max(largest, min(whole for whole, _ in fits))
        total += min(share for _, share in fits)
    return -(-max(largest, total) // 1000)


def _distance(candidate: tuple[InstanceType, Resources]) -> tuple[float, str]:
    """The distance of a type from a demand: the sum of the missing shares of each resource."""
    machine, need = candidate
    short = need.shortfall(machine.capacity)
    missing = (
        short.gpus / (need.gpus or 1)
        + short.milli_cpus / (need.milli_cpus or 1)
        + short.memory_mib / (need.memory_mib or 1)
        + short.disk_mib / (need.disk_mib or 1)
    )
    return missing, machine.name


def _in_words(short: Resources) -> str:
    parts = []
    if short.gpus:
        parts.append(f"{short.gpus} GPU{'s' if short.gpus > 1 else ''}")
    if short.milli_cpus:
        parts.append(f"{short.milli_cpus / 1000:g} vCPUs")
    if short.memory_mib:
        parts.append(f"{short.memory_mib / 1024:g} GiB of memory")
    if short.disk_mib:
        parts.append(f"{short.disk_mib / 1024:g} GiB of disk")
    return " and ".join(parts)
