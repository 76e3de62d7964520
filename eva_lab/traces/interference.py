"""Tables of interference: the built-in one, files, and one value for all pairs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from eva_lab.traces.rows import read_json, refusal, row_problem
from eva_lab.traces.workloads import aliases, measured
from eva_master.model.trace import Interference
from eva_wire.text.yamlfile import suggestion
from eva_wire.values.errors import Problem
from eva_wire.values.ids import MILLION, Workload

_Normalised = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]
_Rows = Mapping[str, Mapping[str, float | None]]


class _File(BaseModel):
    """A table: what the row's workload achieves beside the column's; null if not measured."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    throughput: dict[str, dict[str, _Normalised | None]]
    default: _Normalised = 0.95
    source: str = ""


def read_interference(path: Path) -> Interference:
    """Read a table of interference.

    Raises:
        InvalidTrace: The file cannot be read or is wrong; names row and column of each problem.
    """
    content = read_json(path)
    try:
        table = _File.model_validate(content)
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise refusal(path, (row_problem(detail, "key") for detail in details)) from error
    if problems := list(_unknown_columns(table)):
        raise refusal(path, problems)
    return _table(table.throughput, table.default)


def measured_interference() -> Interference:
    """The table that comes with the project."""
    section = measured()["interference"]
    columns = section["beside"]
    rows = {row: dict(zip(columns, cells, strict=True)) for row, cells in section["rows"].items()}
    return _table(rows, section["default"])


def uniform_interference(normalised: float) -> Interference:
    """Make a table with one value for all pairs.

    Args:
        normalised: Throughput of any workload beside any other, in (0, 1].
    """
    return Interference({}, round(normalised * MILLION))


def _unknown_columns(table: _File) -> Iterator[Problem]:
    """Refuse a column without a row, which must be a mistake."""
    for row, cells in table.throughput.items():
        for column in cells:
            if column not in table.throughput:
                hint = suggestion(column, list(table.throughput))
                yield Problem("there is no such row", f"row {row}: {column}", hint=hint)


def _table(rows: _Rows, default: float) -> Interference:
    names = {Workload(row): [Workload(row)] for row in rows}
    for alias, row in aliases().items():
        if alias not in names and row in names:
            names[row].append(alias)
    pairs = {
        (workload, other): max(1, round(cell * MILLION))
        for row, cells in rows.items()
        for column, cell in cells.items()
        if cell is not None
        for workload in names[Workload(row)]
        for other in names[Workload(column)]
    }
    return Interference(pairs, round(default * MILLION))
