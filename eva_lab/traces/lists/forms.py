"""Tells which form a list of jobs has, reads it, and makes a trace of it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from eva_lab.traces.lists.listed import TOO_LARGE, EqualTasks, JobList, ListedJob, owner_of, told_of
from eva_lab.traces.lists.logs import is_philly, is_swf, read_philly, read_swf
from eva_lab.traces.lists.tables import ALIBABA_2020, HELIOS, PLAIN, columns_of, read_table
from eva_lab.traces.rows import plain_suffix, read_text, refusal
from eva_master.model.catalog import Catalog
from eva_master.model.resources import Resources
from eva_master.model.trace import Trace, TraceJob, TraceTask
from eva_wire.values.errors import InvalidTrace, Problem
from eva_wire.values.ids import MILLION, Workload

GIB_PER_CPU = 2.0
"""Memory of a vCPU, where a list tells none."""
CPUS_PER_GPU = 4.0
"""vCPUs of a GPU, where a list tells none; so they have a quarter of a p3's memory at least."""
GIB_PER_GPU = 16.0
_MOST_MEMBERS = 10_000


@dataclass(frozen=True, slots=True)
class ListForm:
    """A form of list.

    Attributes:
        name: For people.
        read: Reads a file of this form.
    """

    name: str
    read: Callable[[Path], JobList]


_TABLES = {
    "columns arrival, duration, gpus, cpus, memory": PLAIN,
    "Helios' job list": HELIOS,
    "Alibaba's task list of 2020": ALIBABA_2020,
}
_STATES_OF_2020 = frozenset({"terminated", "failed", "running", "waiting"})


def form_of(path: Path) -> ListForm | None:
    """The form of a list of jobs, by the end of its name and its first line; `None` if unknown.

    Raises:
        InvalidTrace: The file cannot be read.
    """
    suffix = plain_suffix(path)
    if suffix == ".csv":
        return _table(path)
    if suffix == ".json":
        return ListForm("Philly's job log", read_philly) if is_philly(_json(path)) else None
    if suffix == ".swf" or is_swf(path):
        return ListForm("the Standard Workload Format", read_swf)
    return None


def _table(path: Path) -> ListForm | None:
    names = columns_of(path)
    for name, columns in _TABLES.items():
        whole = set(columns.needed) <= set(names)
        bare = len(names) == len(columns.positional) > 3 and names[3] in _STATES_OF_2020
        if whole or bare:
            return ListForm(name, partial(read_table, form=columns))
    return None


def _json(path: Path) -> object:
    try:
        return json.loads(read_text(path))
    except (ValueError, RecursionError):
        return None


def read_list(path: Path, form: ListForm, catalog: Catalog, most: int | None = None) -> Trace:
    """Make a trace of a list of jobs.

    Times begin with the first job that runs. Demands are rounded up to whole GPUs, thousandths of
    vCPUs and MiB. The trace's notes tell what was left out and what was assumed.

    Args:
        path: The file.
        form: Its form.
        catalog: The offerings that may hold the jobs.
        most: Only so many of its jobs.

    Raises:
        InvalidTrace: The file cannot be read or is wrong; names line and field of each problem.
    """
    listing = form.read(path)
    if listing.problems:
        raise refusal(path, listing.problems)
    listing.jobs.sort(key=lambda job: job.arrival_s)
    placed = list(_placed(listing, catalog))[:most]
    if not placed:
        reasons = "; ".join(notes(form, listing)[1:]) or "it is empty"
        raise refusal(path, [Problem(f"there is no job that can be run: {reasons}")])
    first = placed[0][0].arrival_s
    jobs = tuple(_job(str(number), job, tasks, first) for number, (job, tasks) in enumerate(placed))
    name = path.name.partition(".")[0]
    return Trace(name, jobs, notes=notes(form, listing))


def notes(form: ListForm, found: JobList) -> tuple[str, ...]:
    """How a list was read, for people."""
    remarks = [f"read as {form.name}"]
    if found.left_out:
        remarks.append(told_of(found.left_out, found.rows, "jobs"))
    parts = [part for job in found.jobs for part in job.parts]
    if any(part.gpus and not part.cpus for part in parts):
        remarks.append(f"assumed {CPUS_PER_GPU:g} vCPUs for each GPU where the list tells none")
    if any(not part.memory_gib for part in parts):
        remarks.append(
            f"assumed {GIB_PER_CPU:g} GiB for each vCPU, and {GIB_PER_GPU:g} GiB for each GPU, "
            "where the list tells no memory"
        )
    if found.unread:
        remarks.append(f"left unread: the columns {', '.join(found.unread)}")
    return tuple(remarks)


def _placed(found: JobList, catalog: Catalog) -> Iterator[tuple[ListedJob, tuple[Resources, ...]]]:
    """The jobs that instance types can hold, with the demand of each task."""
    capacities = {offering.type.capacity for offering in catalog}
    for job in found.jobs:
        tasks = [demand for part in job.parts for demand in _demands(part, capacities)]
        if all(task is not None for task in tasks) and len(tasks) <= _MOST_MEMBERS:
            yield job, tuple(task for task in tasks if task is not None)
        else:
            found.left_out[TOO_LARGE] += 1


def _demands(part: EqualTasks, capacities: Collection[Resources]) -> Iterator[Resources | None]:
    """The demand of each task; `None` for one that fits nowhere."""
    largest = max(capacity.milli_cpus for capacity in capacities)
    least = math.ceil(part.cpus * 1_000 / largest) if part.divisible and largest else 1
    most = math.ceil(part.cpus) if part.divisible else 1
    for pieces in range(max(1, least), min(most, _MOST_MEMBERS) + 1):
        demand = _demand(part, pieces)
        if any(demand.fits(capacity) for capacity in capacities):
            yield from (demand,) * (part.count * pieces)
            return
    yield None


def _demand(part: EqualTasks, pieces: int) -> Resources:
    cpus = part.cpus or CPUS_PER_GPU * math.ceil(part.gpus)
    memory = part.memory_gib or max(GIB_PER_CPU * cpus, GIB_PER_GPU * math.ceil(part.gpus))
    return Resources(
        gpus=math.ceil(part.gpus / pieces),
        milli_cpus=math.ceil(cpus * 1_000 / pieces),
        memory_mib=math.ceil(memory * 1_024 / pieces),
    )


def _job(number: str, job: ListedJob, tasks: tuple[Resources, ...], first_s: float) -> TraceJob:
    duration_ms = max(1, round(job.duration_s * 1_000))
    return TraceJob(
        id=number,
        workload=Workload(job.workload),
        arrival_ms=round((job.arrival_s - first_s) * 1_000),
        duration_ms=duration_ms,
        tasks=tuple(TraceTask(demand) for demand in tasks),
        steps_per_s=MILLION,
        total_steps=duration_ms // 1_000,
        owner=owner_of(job.user),
    )


def unknown_form(path: Path) -> InvalidTrace:
    """Refuse a file that is of no form that can be read, and say which ones can."""
    forms = (
        "traces of Eva (.json, .jsonl), the Standard Workload Format (.swf), Philly's job log "
        "(.json), CSV with the columns arrival, duration, gpus, cpus, memory (seconds, GiB), "
        "Helios' and Alibaba's job lists (.csv), Hawk's traces (.tr), and past jobs with arrays "
        "(.txt); any of them may be compressed (.gz)"
    )
    return InvalidTrace(f"{path} has no form that can be read", hint=f"these can: {forms}")
