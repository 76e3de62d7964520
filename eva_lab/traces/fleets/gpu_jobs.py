"""Traces as a CSV file of training jobs with a rate on each GPU type.

The header names the columns ``job``, ``workload``, ``gpus`` and ``iterations``; ``gpu_hours`` and
``category`` say where a job comes from, and are left unread. Every other column is a GPU type.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eva_lab.traces.lines import read_lines
from eva_lab.traces.rows import refusal
from eva_wire.values.bounds import MOST_TASKS
from eva_wire.values.errors import Problem
from eva_wire.values.ids import Family, Workload

_READ = ("job", "workload", "gpus", "iterations")
_UNREAD = ("gpu_hours", "category")
_MOST = 1e12


@dataclass(frozen=True, slots=True)
class GpuJob:
    """A job of such a file.

    Attributes:
        name: As the file has it.
        gpus: How many it trains on at a time, all or none.
        iterations: Of all its GPUs together.
        rates: Iterations per second and GPU, by type.
    """

    name: str
    workload: Workload
    gpus: int
    iterations: float
    rates: tuple[tuple[Family, float], ...]


def read_gpu_jobs(path: Path) -> tuple[GpuJob, ...]:
    """Read the jobs of a file.

    Args:
        path: Of the file, which may be compressed with gzip.

    Returns:
        The jobs in their order.

    Raises:
        InvalidTrace: The file cannot be read or is wrong; names the line of each problem.
    """
    header, *lines = list(csv.reader(read_lines(path))) or [[]]
    if problems := _of_header(header):
        raise refusal(path, [Problem(message, line=1, column=1) for message in problems])
    gpu_jobs: list[GpuJob] = []
    wrong: list[Problem] = []
    names: set[str] = set()
    for number, words in enumerate(lines, 2):
        try:
            job = _job(header, words)
            if job.name in names:
                raise ValueError(f"a second job {job.name!r}")
            names.add(job.name)
            gpu_jobs.append(job)
        except ValueError as error:
            wrong.append(Problem(str(error), line=number, column=1))
    if not gpu_jobs and not wrong:
        wrong.append(Problem("there is no job in it"))
    if wrong:
        raise refusal(path, wrong)
    return tuple(gpu_jobs)


def _of_header(header: Sequence[str]) -> list[str]:
    """Problems of the column names."""
    problems = [f"there is no column {name!r}" for name in _READ if name not in header]
    problems += [
        f"the column {name!r} stands twice" for name, n in Counter(header).items() if n > 1
    ]
    if not any(name not in (*_READ, *_UNREAD) for name in header):
        problems.append("there is no column of a GPU type, with iterations per second and GPU")
    return problems


def _job(header: Sequence[str], words: Sequence[str]) -> GpuJob:
    """The job of a line; raises `ValueError`, which says what is wrong."""
    if len(words) != len(header):
        raise ValueError(f"it has {len(words)} columns, and the header has {len(header)}")
    row = dict(zip(header, words, strict=True))
    for name in ("job", "workload"):
        if not row[name].strip():
            raise ValueError(f"{name} is empty")
    gpus = _positive(row, "gpus")
    if gpus != int(gpus) or gpus > MOST_TASKS:
        raise ValueError(f"gpus: {row['gpus']!r} is no whole number from 1 to {MOST_TASKS:,}")
    types = [name for name in header if name not in (*_READ, *_UNREAD)]
    return GpuJob(
        name=row["job"].strip(),
        workload=Workload(row["workload"].strip()),
        gpus=int(gpus),
        iterations=_positive(row, "iterations"),
        rates=tuple((Family(name), _positive(row, name)) for name in types),
    )


def _positive(row: Mapping[str, str], name: str) -> float:
    """A number of a row above 0; raises `ValueError`."""
    word = row[name].strip()
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not 0 < value <= _MOST or "_" in word:
        raise ValueError(f"{name}: {word[:40]!r} is no number above 0, and at most {_MOST:g}")
    return value
