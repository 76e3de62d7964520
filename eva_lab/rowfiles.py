"""Writes tables to files: Parquet, or a JSON object per line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path

from eva_wire.values.errors import InvalidConfig

Cell = str | int | float | bool | None
Row = Mapping[str, Cell]


class RowFormat(StrEnum):
    """How tables are written; the value is the files' suffix."""

    PARQUET = "parquet"
    JSONL = "jsonl"


def default_format() -> RowFormat:
    """Parquet where it can be written."""
    return RowFormat.PARQUET if find_spec("pyarrow") else RowFormat.JSONL


def write_rows(folder: Path, name: str, rows: Iterable[Row], format_: RowFormat) -> Path:
    """Write a table atomically.

    Args:
        folder: Directory of the file, which is created if need be.
        name: Name of the file, without suffix.
        rows: A column is null where a row has none.
        format_: Format of the file.

    Returns:
        The file.

    Raises:
        InvalidConfig: The file cannot be written, or pyarrow is missing.
    """
    path = folder / f"{name}.{format_.value}"
    unfinished = path.with_name(f".{path.name}.new")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if format_ is RowFormat.PARQUET:
            _parquet(unfinished, rows)
        else:
            with unfinished.open("w", encoding="utf-8") as file:
                file.writelines(f"{json.dumps(dict(row), ensure_ascii=False)}\n" for row in rows)
        unfinished.replace(path)
    except OSError as error:
        raise InvalidConfig(f"{path} cannot be written: {error.strerror or error}") from error
    return path


def _parquet(path: Path, rows: Iterable[Row]) -> None:
    if find_spec("pyarrow") is None:
        raise InvalidConfig(
            "Parquet needs pyarrow, which is not installed",
            hint="pip install 'eva-lab[sim]', or write JSON lines: --format jsonl",
        )
    import pyarrow as pa
    import pyarrow.parquet as pq

    table_rows = list(rows)
    columns = dict.fromkeys(key for row in table_rows for key in row)
    table = pa.table({name: [row.get(name) for row in table_rows] for name in columns})
    pq.write_table(table, path)
