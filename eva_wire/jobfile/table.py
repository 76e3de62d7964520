"""Tables of arrays: CSV files in which a row is a task and a column is a variable."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import StringIO

from eva_wire.jobfile.scalars import (
    ROOM_OF_VARIABLE,
    check_name,
    check_value,
    check_variable,
    size_of,
)
from eva_wire.jobfile.schema import JobFile
from eva_wire.text.yamlfile import Document, invalid, shortened, suggestion
from eva_wire.values.bounds import MOST_ROWS
from eva_wire.values.errors import InvalidJob, Problem

MOST_TABLE_BYTES = 16 * 1024 * 1024
"""Size of the largest table."""
MOST_COLUMNS = 1_000
"""Columns of a table at most."""
NAMES = "name"
"""The column that names the tasks unless another one is chosen."""
_ENOUGH_PROBLEMS = 20
"""Reading ends after so many faults."""
_LONG_ROW = 30_000
"""A row of fewer characters holds no value that is too large."""
_BOMS = (b"\xff\xfe", b"\xfe\xff")
"""Beginnings of texts in UTF-16."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table that was read.

    Attributes:
        file_name: Its name, for messages.
        rows: How many tasks it has.
        columns: The variables.
        names: Names of the tasks, a line for each; empty if no column names them.
        largest: Bytes of the variables of the task with most, as the kernel counts them.
    """

    file_name: str
    rows: int
    columns: tuple[str, ...] = ()
    names: str = ""
    largest: int = 0


def read_table(data: bytes, *, file_name: str, names: str = "") -> Table:
    """Read a table and check each row.

    Args:
        data: The content of the file.
        file_name: Its name, for messages.
        names: Column that names the tasks; empty for `NAMES`, if there is one.

    Raises:
        InvalidJob: The table cannot be used, with the line of each fault.
    """
    problems: list[Problem] = []
    try:
        return _read(_text_of(data), file_name, names, problems)
    except _FaultyError as failure:
        raise invalid(InvalidJob, file_name, [*problems, failure.problem]) from None


def with_table(
    document: Document, job: JobFile, table: Table | None, envs: Mapping[str, str]
) -> tuple[JobFile, list[Problem]]:
    """The array that a job file and a table make, and contradictions between the two.

    Args:
        document: The job file.
        job: Its content.
        table: Table whose rows are the tasks; `None` for a job without one, which stays as it is.
        envs: Variables that override the file's.
    """
    if table is None:
        return job, []
    problems = []
    if "kind" in document.value and job.kind == "gang":
        message = f"the rows of {table.file_name} are tasks of an array"
        problems.append(document.problem(("kind",), message, "write `kind: array`, or remove it"))
    if "tasks" in document.value and job.tasks != table.rows:
        message = f"the tasks are the {table.rows:,} rows of {table.file_name}"
        problems.append(document.problem(("tasks",), message, "remove it"))
    for column in table.columns:
        message = f"{table.file_name} has a column {column}, too"
        if column in envs:
            problems.append(Problem(message, f"envs.{column}", hint="leave one of the two out"))
        elif column in job.envs:
            hint = "remove it here, or rename the column"
            problems.append(document.problem(("envs", column), message, hint))
    return job.model_copy(update={"kind": "array", "tasks": table.rows}), problems


class Rows:
    """The rows of a table that was checked, each read when it is needed.

    Args:
        data: The content of the file.

    Raises:
        InvalidJob: The table cannot be used.
    """

    def __init__(self, data: bytes) -> None:
        self._text = _text_of(data)
        self._starts = array("Q")
        self._columns: list[str] = []
        try:
            for record in _records(self._text):
                if self._columns:
                    self._starts.append(record.start)
                else:
                    self._columns = record.values
        except _FaultyError as failure:
            raise invalid(InvalidJob, "the table", [failure.problem]) from None
        self._starts.append(len(self._text))

    @property
    def columns(self) -> Sequence[str]:
        """The variables, in order."""
        return self._columns

    def __len__(self) -> int:
        return len(self._starts) - 1

    @property
    def size(self) -> int:
        """Bytes that the rows take in memory, about."""
        return 2 * len(self._text) + 8 * len(self._starts)

    def row(self, index: int) -> dict[str, str]:
        """The variables of a task.

        Raises:
            InvalidJob: The table has no such row.
        """
        if not 0 <= index < len(self):
            raise InvalidJob(f"the table has {len(self):,} rows, and none for {index}")
        lines = self._text[self._starts[index] : self._starts[index + 1]]
        values = next(_records(lines)).values
        return dict(zip(self._columns, values, strict=True))


@dataclass(frozen=True, slots=True)
class _Record:
    """A record of a file: its first line, where it begins, and its values."""

    line: int
    start: int
    values: list[str]


class _FaultyError(Exception):
    """The table cannot be read further."""

    def __init__(self, message: str, line: int, hint: str = "") -> None:
        super().__init__(message)
        self.problem = Problem(message, line=line, column=1 if line else 0, hint=hint)


def _text_of(data: bytes) -> str:
    """The text of a file, without a byte order mark."""
    if len(data) > MOST_TABLE_BYTES:
        raise _FaultyError(
            f"the table has {len(data):,} bytes, at most {MOST_TABLE_BYTES:,} are allowed",
            0,
            "put large values into files of the working directory, and their names into the table",
        )
    if data.startswith(_BOMS):
        raise _FaultyError("the table is UTF-16, not UTF-8", 0, "save it as CSV UTF-8")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        line = data.count(b"\n", 0, failure.start) + 1
        raise _FaultyError("the line is no text in UTF-8", line, "save it as CSV UTF-8") from None
    if (at := text.find("\0")) >= 0:
        line = text.count("\n", 0, at) + 1
        raise _FaultyError("the line holds a NUL character", line, "remove it")
    return text


class _Lines:
    """The lines of a text, with their ends, and how far they were read."""

    def __init__(self, text: str) -> None:
        self._lines = StringIO(text, newline="")
        self.position = 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.position += len(line)
        return line


def _records(text: str) -> Iterator[_Record]:
    """The records of a text, empty lines left out.

    Raises:
        _FaultyError: The text is no CSV.
    """
    lines = _Lines(text)
    reader = csv.reader(lines, strict=True)
    while True:
        line, start = reader.line_num + 1, lines.position
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise _FaultyError(*_no_csv(str(error), line)) from None
        if values:
            yield _Record(line, start, values)


def _no_csv(error: str, line: int) -> tuple[str, int, str]:
    if "unexpected end" in error:
        return "a quote begins here and never ends", line, 'write "" for a quote within a value'
    if "field limit" in error:
        return "a value is too long", line, "put it into a file of the working directory"
    return f"the line is no CSV: {error}", line, 'write "" for a quote within a value'


def _read(text: str, file_name: str, names: str, problems: list[Problem]) -> Table:
    """Read a table; faults that hide no other are added to `problems`."""
    records = _records(text)
    header = next(records, None)
    if header is None:
        raise _FaultyError("the table is empty", 0, "begin with a line of column names")
    columns = header.values
    problems += _column_problems(columns, header.line)
    named = _names_column(columns, names, header.line)
    room = sum(size_of(column) + ROOM_OF_VARIABLE for column in columns)
    task_names: dict[str, int] = {}
    rows = largest = 0
    for record in records:
        if len(problems) >= _ENOUGH_PROBLEMS:
            break
        rows += 1
        if rows > MOST_ROWS:
            hint = "split it into several tables, each for a job"
            raise _FaultyError(f"the table has more than {MOST_ROWS:,} rows", record.line, hint)
        joined = "".join(record.values)
        largest = max(largest, size_of(joined))
        problems += _row_problems(record, columns, long=len(joined) > _LONG_ROW)
        if named is not None and named < len(record.values):
            problems += _name_problems(record.values[named], record.line, task_names)
    if not rows and not problems:
        hint = "write a line for each task below the names of the columns"
        raise _FaultyError("the table has no rows", 0, hint)
    if problems:
        raise invalid(InvalidJob, file_name, problems)
    return Table(file_name, rows, tuple(columns), "\n".join(task_names), room + largest)


def _column_problems(columns: list[str], line: int) -> Iterator[Problem]:
    if len(columns) > MOST_COLUMNS:
        message = f"the table has {len(columns):,} columns, at most {MOST_COLUMNS:,} are allowed"
        yield Problem(message, line=line, column=1)
        return
    seen: set[str] = set()
    for column in columns:
        if column in seen:
            message = f"there are two columns {shortened(column)!r}"
            yield Problem(message, line=line, column=1, hint="rename or remove one of them")
        seen.add(column)
        if problem := _variable_problem(column, line, alone=len(columns) == 1):
            yield problem


def _variable_problem(column: str, line: int, *, alone: bool) -> Problem | None:
    """A complaint about a column that cannot be a variable."""
    if not column:
        return Problem("a column has no name", line=line, column=1, hint="name it, or remove it")
    try:
        check_variable(column)
    except ValueError as refusal:
        context = getattr(refusal, "context", None) or {}
        hint = context.get("hint", "")
        if alone and (";" in column or "\t" in column):
            hint = "separate columns by commas"
        return Problem(f"column: {refusal}", line=line, column=1, hint=hint)
    return None


def _names_column(columns: list[str], names: str, line: int) -> int | None:
    """Which column names the tasks, `None` if none does."""
    if (names or NAMES) in columns:
        return columns.index(names or NAMES)
    if not names:
        return None
    hint = suggestion(names, columns) or f"its columns are {shortened(', '.join(columns))}"
    raise _FaultyError(f"there is no column {shortened(names)!r}", line, hint)


def _row_problems(record: _Record, columns: list[str], *, long: bool) -> Iterator[Problem]:
    count, wanted = len(record.values), len(columns)
    if count != wanted:
        message = (
            f"the row has {count:,} value{'' if count == 1 else 's'}, and the table has"
            f" {wanted:,} column{'' if wanted == 1 else 's'}"
        )
        hint = 'a value that holds a comma is written in quotes: "a,b"'
        yield Problem(message, line=record.line, column=1, hint=hint)
        return
    for column, value in zip(columns, record.values, strict=True) if long else ():
        try:
            check_value(value)
        except ValueError as refusal:
            context = getattr(refusal, "context", None) or {}
            message, hint = f"{column}: {refusal}", context.get("hint", "")
            yield Problem(message, line=record.line, column=1, hint=hint)


def _name_problems(name: str, line: int, known: dict[str, int]) -> Iterator[Problem]:
    """Complaints about the name of a task; a good one is added to those that are known."""
    if name in known:
        message = f"the task {name!r} is on line {known[name]:,}, too"
        yield Problem(message, line=line, column=1, hint="give each task a name of its own")
        return
    known[name] = line
    hint = "choose another column with --names, or rename this one if it names no tasks"
    try:
        check_name(name)
    except ValueError:
        message = f"{shortened(name)!r} cannot be the name of a task"
        rules = "use up to 63 letters, digits, '.', '_' and '-'"
        yield Problem(message, line=line, column=1, hint=f"{rules}; or {hint}")
        return
    if name.isdigit():
        message = f"{name!r} cannot be the name of a task: JOB/{name} is the task of that index"
        yield Problem(message, line=line, column=1, hint=hint)
