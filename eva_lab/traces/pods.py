"""The pod list of Alibaba's ``cluster-trace-gpu-v2023``, by the Eva paper's rule (section 6.1)."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from eva_lab.traces.lines import read_lines
from eva_lab.traces.lists.listed import FAILED, TOO_LARGE, told_of
from eva_lab.traces.rows import refusal
from eva_lab.traces.shapes import Shape
from eva_master.model.catalog import Catalog
from eva_master.model.resources import Resources
from eva_wire.values.errors import Problem

_FAILED = "Failed"
_NUMBERS = ("num_gpu", "cpu_milli", "memory_mib", "creation_time", "deletion_time")
COLUMNS = (*_NUMBERS, "pod_phase")
_LARGEST_NUMBER = 10**12


@dataclass(frozen=True, slots=True)
class Pods:
    """Pods of a pod list that can be run.

    Attributes:
        shapes: Demands and durations of pods, in their order.
        notes: Notes on pods that were left out.
    """

    shapes: tuple[Shape, ...]
    notes: tuple[str, ...]


def read_pods(path: Path, catalog: Catalog) -> Pods:
    """Read the demands and durations of pods.

    Failed pods are left out, and those that no instance type can hold. Demands are rounded up to
    whole vCPUs and GiB; a share of a GPU is a GPU.

    Args:
        path: A CSV file with the columns of the pod list, compressed with gzip or not.
        catalog: The offerings that may hold them.

    Raises:
        InvalidTrace: The file cannot be read or is wrong; names line and column of each problem.
    """
    lines = csv.DictReader(read_lines(path), strict=True)
    if missing := [column for column in COLUMNS if column not in (lines.fieldnames or ())]:
        problem = Problem(f"columns are missing: {', '.join(missing)}", line=1, column=1)
        raise refusal(path, [problem])
    problems: list[Problem] = []
    left_out: Counter[str] = Counter()
    capacities = {offering.type.capacity for offering in catalog}
    shapes = []
    for shape in _shapes(path, lines, problems, left_out):
        if any(shape.demand.fits(capacity) for capacity in capacities):
            shapes.append(shape)
        else:
            left_out[TOO_LARGE] += 1
    if not problems and not shapes:
        problems.append(Problem("there is no pod that an instance type could hold"))
    if problems:
        raise refusal(path, problems)
    total = len(shapes) + left_out.total()
    return Pods(tuple(shapes), (told_of(left_out, total, "pods"),) if left_out else ())


def _shapes(
    path: Path, lines: csv.DictReader[str], problems: list[Problem], left_out: Counter[str]
) -> Iterator[Shape]:
    columns = len(lines.fieldnames or ())
    try:
        for row in lines:
            width = len([value for name, value in row.items() if name and value is not None])
            if width < columns or None in row:
                count = f"more than {columns}" if None in row else f"{width} of {columns}"
                message = f"the row has {count} columns"
                problems.append(_problem(row, "", lines.line_num, message))
                continue
            if row["pod_phase"] == _FAILED:
                left_out[FAILED] += 1
                continue
            before = len(problems)
            amounts = {name: _amount(row, name, lines.line_num, problems) for name in _NUMBERS}
            lifetime = amounts["deletion_time"] - amounts["creation_time"]
            if lifetime < 0:
                message = "is before creation_time"
                problems.append(_problem(row, "deletion_time", lines.line_num, message))
            if len(problems) == before:
                yield _shape(amounts, lifetime)
    except csv.Error as error:
        problem = Problem(f"this is not CSV: {error}", line=lines.line_num, column=1)
        raise refusal(path, [problem]) from error


def _shape(amounts: dict[str, float], lifetime_s: float) -> Shape:
    demand = Resources(
        gpus=math.ceil(amounts["num_gpu"]),
        milli_cpus=math.ceil(amounts["cpu_milli"] / 1_000) * 1_000,
        memory_mib=math.ceil(amounts["memory_mib"] / 1_024) * 1_024,
    )
    return Shape(demand, round(lifetime_s * 1_000))


def _amount(row: dict[str, str], name: str, line: int, problems: list[Problem]) -> float:
    text = row[name]
    try:
        amount = float(text)
    except ValueError:
        problems.append(_problem(row, name, line, f"{text!r} is not a number"))
        return 0
    if not 0 <= amount <= _LARGEST_NUMBER:
        problems.append(_problem(row, name, line, f"{text} is out of range"))
        return 0
    return amount


def _problem(row: dict[str, str], name: str, line: int, message: str) -> Problem:
    pod = row.get("name")
    key = ": ".join(filter(None, (pod, name)))
    return Problem(message, key, line=line, column=1)
