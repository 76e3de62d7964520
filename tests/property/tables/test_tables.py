"""Tables: whatever a CSV writer writes is read as it was; whatever else is refused in words."""

from __future__ import annotations

import csv
import io

from hypothesis import assume, given
from hypothesis import strategies as st

from eva_wire.jobfile.table import Rows, read_table
from eva_wire.values.errors import InvalidJob, Problem

TEXT = st.text(
    st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=8
) | st.sampled_from(["\r", "\n", "\r\n", '"', '""', ",", " ", "a,b", "'", "\u2028", "\x85", "\x0b"])


NAMES = st.from_regex(r"[A-DF-Z_][A-Z0-9_]{0,3}", fullmatch=True).filter(
    lambda name: name.isascii()
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[str], list[list[str]]]:
    columns = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    row = st.lists(TEXT, min_size=len(columns), max_size=len(columns))
    return columns, draw(st.lists(row, min_size=1, max_size=5))


@given(
    table=tables(),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    mark=st.sampled_from(["", "\ufeff"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
def test_what_is_written_is_read(
    table: tuple[list[str], list[list[str]]], end: str, mark: str, quoting: int
) -> None:
    columns, values = table
    # Such a writer leaves a carriage return without quotes, which then ends a line.
    assume(quoting == csv.QUOTE_ALL or not any("\r" in text for row in values for text in row))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator=end, quoting=quoting)
    writer.writerow(columns)
    writer.writerows(values)
    data = (mark + out.getvalue()).encode()
    read = read_table(data, file_name="t.csv")
    rows = Rows(data)
    assert (read.rows, list(read.columns)) == (len(values), columns)
    assert [rows.row(index) for index in range(read.rows)] == [
        dict(zip(columns, row, strict=True)) for row in values
    ]


@given(data=st.binary(max_size=200) | st.text('a,"\n\r\0 \ufeff1', max_size=60).map(str.encode))
def test_anything_else_is_read_or_refused_in_words(data: bytes) -> None:
    problems: tuple[Problem, ...] = ()
    try:
        table = read_table(data, file_name="t.csv")
    except InvalidJob as refusal:
        problems = refusal.problems
    else:
        rows = Rows(data)
        assert len(rows) == table.rows
        for index in range(table.rows):
            assert list(rows.row(index)) == list(table.columns)
        return
    assert problems
    assert all(problem.message for problem in problems)
