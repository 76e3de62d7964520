"""Lists of jobs that are no tables: the Standard Workload Format, and Philly's JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from eva_lab.traces.lines import read_lines, telling
from eva_lab.traces.lists.listed import (
    NO_DEMAND,
    NO_RUN_TIME,
    EqualTasks,
    JobList,
    ListedJob,
    amount,
    instant_s,
    is_nothing,
    workload_of,
)
from eva_lab.traces.rows import read_json
from eva_wire.values.errors import Problem

_SWF_FIELDS = 18
_KIB_IN_GIB = 1 << 20
_MOST_MEMBERS = 10_000


def is_swf(path: Path) -> bool:
    """Whether the first line that says something is one of the Standard Workload Format."""
    first = next(telling(read_lines(path), ";"), None)
    if first is None:
        return False
    words = first[1].split()
    return len(words) == _SWF_FIELDS and all(_is_number(word) for word in words)


def _is_number(word: str) -> bool:
    return word.lstrip("-").replace(".", "", 1).isdigit()


def read_swf(path: Path) -> JobList:
    """Read a log in the Standard Workload Format of the Parallel Workloads Archive.

    A job of several processors is as many vCPUs, on several instances if it has to be.

    Raises:
        InvalidTrace: The file cannot be read.
    """
    listing = JobList(path)
    for number, line in telling(read_lines(path), ";"):
        listing.rows += 1
        words = line.split()
        try:
            if len(words) != _SWF_FIELDS:
                raise ValueError(f"the row has {len(words)} of {_SWF_FIELDS} columns")
            job = _of_swf(words)
        except ValueError as error:
            listing.problems.append(Problem(str(error), line=number, column=1))
            continue
        listing.add(job)
    return listing


def _of_swf(words: Sequence[str]) -> ListedJob | str:
    """The job of a line; fields count from 1 in the format's definition."""
    run_time, allocated, requested = words[3], words[4], words[7]
    if is_nothing(run_time) or not amount(run_time, "run time"):
        return NO_RUN_TIME
    processors = requested if is_nothing(allocated) else allocated
    if is_nothing(processors) or not amount(processors, "processors"):
        return NO_DEMAND
    memory = words[9] if is_nothing(words[6]) else words[6]
    per_processor = 0.0 if is_nothing(memory) else amount(memory, "memory") / _KIB_IN_GIB
    count = amount(processors, "processors")
    part = EqualTasks(1, 0, count, count * per_processor, divisible=True)
    return ListedJob(
        amount(words[1], "submit time"),
        amount(run_time, "run time"),
        (part,),
        workload_of("" if is_nothing(words[13]) else f"application-{words[13]}", "swf"),
        "" if is_nothing(words[11]) else f"user-{words[11]}",
    )


def is_philly(rows: object) -> bool:
    """Whether JSON is a list of jobs with attempts."""
    return (
        isinstance(rows, list)
        and bool(rows)
        and isinstance(rows[0], dict)
        and {"attempts", "submitted_time"} <= rows[0].keys()
    )


def read_philly(path: Path) -> JobList:
    """Read the job log of Microsoft's Philly: a list of jobs with the GPUs of each attempt.

    A job runs for as long as all its attempts together, on the GPUs of the last of them.

    Raises:
        InvalidTrace: The file cannot be read.
    """
    listing = JobList(path)
    for number, row in enumerate(read_json(path)):
        listing.rows += 1
        try:
            job = _of_philly(row)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            message = (
                str(error) if isinstance(error, ValueError) else "it has not the fields of a job"
            )
            listing.problems.append(Problem(message, f"job {number}"))
            continue
        listing.add(job)
    return listing


def _of_philly(row: Mapping[str, Any]) -> ListedJob | str:
    spans = list(_attempts(row["attempts"]))
    duration_s = sum(seconds for seconds, _ in spans)
    if duration_s <= 0:
        return NO_RUN_TIME
    gpus = [count for _, members in spans[-1:] for count in members if count]
    if not gpus:
        return NO_DEMAND
    if len(gpus) > _MOST_MEMBERS:
        raise ValueError(f"it has {len(gpus):,} machines, and a gang at most {_MOST_MEMBERS:,}")
    return ListedJob(
        instant_s(str(row["submitted_time"]), "submitted_time"),
        duration_s,
        tuple(EqualTasks(1, count) for count in gpus),
        "philly",
        str(row.get("user") or ""),
    )


def _attempts(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[float, list[int]]]:
    """How long each attempt ran, and its GPUs on each machine."""
    for row in rows:
        start, end = str(row.get("start_time")), str(row.get("end_time"))
        if is_nothing(start) or is_nothing(end):
            continue
        members = [len(machine["gpus"]) for machine in row["detail"]]
        yield max(0.0, instant_s(end, "end_time") - instant_s(start, "start_time")), members
