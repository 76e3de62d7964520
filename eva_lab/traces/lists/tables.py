"""Lists of jobs as CSV: plain columns, Helios and Alibaba's tasks of 2020."""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eva_lab.traces.lines import read_lines
from eva_lab.traces.lists.listed import (
    FAILED,
    NO_DEMAND,
    NO_RUN_TIME,
    EqualTasks,
    JobList,
    ListedJob,
    amount,
    instant_s,
    is_nothing,
    whole,
    workload_of,
)
from eva_wire.values.errors import Problem

Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TableForm:
    """A form of table.

    Attributes:
        needed: Columns by which it is known.
        read: Columns that are read where they are there.
        job: Makes a job of a row, or the reason why it is left out; raises `ValueError`.
        positional: Columns of files without a header.
    """

    needed: tuple[str, ...]
    read: tuple[str, ...]
    job: Callable[[Row], ListedJob | str]
    positional: tuple[str, ...] = ()


def columns_of(path: Path) -> tuple[str, ...]:
    """The names in the first line of a table, in lower case; none if it is no line of CSV."""
    try:
        first = next(csv.reader(line for line in read_lines(path)[:1]), [])
    except csv.Error:
        return ()
    return tuple(name.strip().lower() for name in first)


def read_table(path: Path, form: TableForm) -> JobList:
    """Read the jobs of a table.

    Raises:
        InvalidTrace: The file cannot be read.
    """
    listing = JobList(path)
    rows = csv.reader(read_lines(path), strict=True)
    names = columns_of(path)
    if set(form.needed) <= set(names):
        next(rows, None)
    else:
        names = form.positional
    listing.unread = tuple(name for name in names if name not in (*form.needed, *form.read) if name)
    try:
        for words in rows:
            if any(word.strip() for word in words):
                _take(listing, form, names, words, rows.line_num)
    except csv.Error as error:
        listing.problems.append(Problem(f"this is not CSV: {error}", line=rows.line_num, column=1))
    return listing


def _take(
    found: JobList, form: TableForm, names: Sequence[str], words: Sequence[str], line: int
) -> None:
    found.rows += 1
    if len(words) != len(names):
        message = f"the row has {len(words)} of {len(names)} columns"
        found.problems.append(Problem(message, line=line, column=1))
        return
    try:
        job = form.job(dict(zip(names, words, strict=True)))
    except ValueError as error:
        found.problems.append(Problem(str(error), line=line, column=1))
        return
    found.add(job)


def _number(row: Row, name: str) -> float:
    word = row.get(name, "")
    return 0.0 if is_nothing(word) else amount(word, name)


def _count(row: Row, name: str) -> int:
    word = row.get(name, "")
    return 1 if is_nothing(word) else whole(word, name)


def _plain(row: Row) -> ListedJob | str:
    duration_s = _number(row, "duration")
    part = EqualTasks(
        _count(row, "tasks"), _number(row, "gpus"), _number(row, "cpus"), _number(row, "memory")
    )
    if not duration_s:
        return NO_RUN_TIME
    if not (part.gpus or part.cpus or part.memory_gib):
        return NO_DEMAND
    return ListedJob(
        instant_s(row["arrival"], "arrival"),
        duration_s,
        (part,),
        workload_of(row.get("name", ""), "listed"),
        row.get("user", ""),
    )


def _helios(row: Row) -> ListedJob | str:
    """GPUs and CPUs are those of all nodes together."""
    if is_nothing(row["start_time"]) or not _number(row, "duration"):
        return NO_RUN_TIME
    nodes = _count(row, "node_num")
    gpus, cpus = _number(row, "gpu_num"), _number(row, "cpu_num")
    if not (gpus or cpus):
        return NO_DEMAND
    return ListedJob(
        instant_s(row["submit_time"], "submit_time"),
        _number(row, "duration"),
        (EqualTasks(nodes, -(-gpus // nodes), -(-cpus // nodes)),),
        workload_of(row.get("jobname", ""), "helios"),
        row["user"],
    )


def _alibaba(row: Row) -> ListedJob | str:
    """CPUs and GPUs are hundredths, memory GiB; every task of the list is a job of its own."""
    if row["status"].strip().lower() == FAILED:
        return FAILED
    if is_nothing(row["start_time"]) or is_nothing(row["end_time"]):
        return NO_RUN_TIME
    start = instant_s(row["start_time"], "start_time")
    duration_s = instant_s(row["end_time"], "end_time") - start
    if duration_s <= 0:
        return NO_RUN_TIME
    gpus, cpus = _number(row, "plan_gpu") / 100, _number(row, "plan_cpu") / 100
    if not (gpus or cpus):
        return NO_DEMAND
    part = EqualTasks(_count(row, "inst_num"), gpus, cpus, _number(row, "plan_mem"))
    return ListedJob(start, duration_s, (part,), workload_of(row["task_name"], "alibaba"))


PLAIN = TableForm(
    ("arrival", "duration", "gpus", "cpus", "memory"), ("tasks", "name", "user"), _plain
)
HELIOS = TableForm(
    ("gpu_num", "cpu_num", "submit_time", "start_time", "duration", "user"),
    ("node_num", "jobname", "job_id", "state", "end_time"),
    _helios,
)
_TASKS_OF_2020 = (
    "job_name",
    "task_name",
    "inst_num",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
    "plan_gpu",
    "gpu_type",
)
ALIBABA_2020 = TableForm(_TASKS_OF_2020[:-1], ("gpu_type",), _alibaba, _TASKS_OF_2020)
