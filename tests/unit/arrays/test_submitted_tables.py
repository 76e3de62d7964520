"""Tables of arrays: what is read, and how each fault of one is told."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from eva_master.adapters.resolving.parse import SubmittedTable, parse_job
from eva_master.adapters.store import codec
from eva_master.model.job import ArrayRules, JobSpec, TaskTable
from eva_wire.jobfile import check_job, read_table
from eva_wire.jobfile.table import MOST_COLUMNS, MOST_TABLE_BYTES, Rows, Table
from eva_wire.values.bounds import MOST_ROWS, JobKind
from eva_wire.values.errors import InvalidJob, LimitExceeded
from tests.fakes.jobs import CATALOG, job

JOB = "name: sweep\nrun: python t.py --lr $lr\nresources: {cpus: 1, memory: 1GiB}\n"


def read(content: str | bytes, **options: str) -> Table:
    data = content.encode() if isinstance(content, str) else content
    return read_table(data, file_name="grid.csv", **options)


def refused(content: str | bytes, **options: str) -> list[tuple[int, str]]:
    """Line and message of each fault, with its hint."""
    with pytest.raises(InvalidJob) as failure:
        read(content, **options)
    assert "grid.csv" in failure.value.message
    return [
        (problem.line, f"{problem.message}; {problem.hint}") for problem in failure.value.problems
    ]


def rows_of(content: str | bytes) -> list[dict[str, str]]:
    data = content.encode() if isinstance(content, str) else content
    rows = Rows(data)
    return [rows.row(index) for index in range(read(content).rows)]


# -- what is read ----------------------------------------------------------------------------------


def test_a_row_is_a_task_and_a_column_a_variable() -> None:
    content = "name,lr,seed\nfirst,0.10,1\nsecond,1e-3,2\n"
    table = read(content)
    assert (table.rows, table.columns) == (2, ("name", "lr", "seed"))
    assert table.names.split("\n") == ["first", "second"]
    assert rows_of(content) == [
        {"name": "first", "lr": "0.10", "seed": "1"},
        {"name": "second", "lr": "1e-3", "seed": "2"},
    ]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("last", [True, False])
def test_ends_of_lines_and_byte_order_marks_make_no_difference(
    end: str, mark: bytes, last: bool
) -> None:
    lines = ["a,b", "1,x y", "", "2,é"]
    content = mark + (end.join(lines) + (end if last else "")).encode()
    assert rows_of(content) == [{"a": "1", "b": "x y"}, {"a": "2", "b": "é"}]


def test_a_quoted_value_may_have_lines_commas_and_quotes() -> None:
    content = 'prompt,n\r\n"one, ""two""\r\nthree",1\r\n"",2\r\n'
    assert rows_of(content) == [
        {"prompt": 'one, "two"\r\nthree', "n": "1"},
        {"prompt": "", "n": "2"},
    ]


def test_a_column_of_empty_values_is_written_in_quotes() -> None:
    assert rows_of('a\n""\n1\n') == [{"a": ""}, {"a": "1"}]


def test_another_column_may_name_the_tasks() -> None:
    content = "run,lr\na-1,1\nb-2,2\n"
    assert read(content).names == ""
    assert read(content, names="run").names == "a-1\nb-2"


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "line", "words"),
    [
        ("", 0, "empty"),
        ("\n\n", 0, "empty"),
        ("a,b\n", 0, "no rows"),
        (b"a\n1\n\xff\xfe\n", 3, "no text in UTF-8"),
        ("a\n1\n".encode("utf-16"), 0, "UTF-16"),
        ("a\n1\nx\0y\n", 3, "NUL"),
        ("a,b\n1,2\n\n3\n", 4, "1 value, and the table has 2 columns"),
        ('a,b\n"1\n2",3\n4,5,6\n', 4, "3 values, and the table has 2 columns"),
        ("a,b,a\n1,2,3\n", 1, "two columns 'a'"),
        ("a,\n1,2\n", 1, "no name"),
        ("a b\n1\n", 1, "cannot be an environment variable"),
        ("1st\n1\n", 1, "cannot be an environment variable"),
        ("a;b\n1;2\n", 1, "commas"),
        ("EVA_STORAGE\n1\n", 1, "set by the cluster"),
        ("CUDA_VISIBLE_DEVICES\n1\n", 1, "set by the cluster"),
        ('a\n"1\n2\n', 2, "never ends"),
        ('a\n"1"2\n', 2, "no CSV"),
        ("name\nx\ny\nx\n", 4, "'x' is on line 2, too"),
        ("name\nx y\n", 2, "cannot be the name of a task"),
        ("name\n12\n", 2, "task of that index"),
        ("name\n../../etc\n", 2, "cannot be the name of a task"),
        ("a\n" + "x" * 120_001 + "\n", 2, "120,000 bytes"),
        ("a\n" + "é" * 60_001 + "\n", 2, "120,000 bytes"),
        ("a\n" + "x" * 140_000 + "\n", 2, "too long"),
        (",".join(f"c{number}" for number in range(MOST_COLUMNS + 1)), 1, "1,001 columns"),
    ],
)
def test_each_fault_is_told_with_its_line(content: str | bytes, line: int, words: str) -> None:
    ((told_line, message),) = refused(content)
    assert told_line == line
    assert words in message


def test_several_faults_are_told_together_and_not_all_of_many() -> None:
    assert [line for line, _ in refused("a,b\n1\n2,3\n4\n")] == [2, 4]
    assert len(refused("a,b\n" + "1\n" * 5_000)) <= 30


def test_the_column_of_names_has_to_be_there() -> None:
    ((line, message),) = refused("trial,lr\na,1\n", names="trail")
    assert line == 1
    assert "no column 'trail'" in message
    assert "did you mean 'trial'?" in message


def test_the_largest_table_is_read_and_a_larger_one_is_not() -> None:
    assert read("a\n" + "1\n" * MOST_ROWS).rows == MOST_ROWS
    ((line, message),) = refused("a\n" + "1\n" * (MOST_ROWS + 1))
    assert (line, "more than 100,000 rows" in message) == (MOST_ROWS + 2, True)
    ((_, message),) = refused(b"a\n" + b"1" * MOST_TABLE_BYTES)
    assert "at most 16,777,216" in message


# -- with a job file -------------------------------------------------------------------------------


def parsed(text: str, table: Table, **options: Any) -> JobSpec:
    return parse_job(
        text,
        file_name="sweep.yaml",
        owner="ana",
        catalog=CATALOG,
        workdir=None,
        table=SubmittedTable(table, "ana/" + "ab" * 32),
        **options,
    )


def test_a_job_file_becomes_an_array_whose_tasks_are_one_value() -> None:
    content = "name,lr\n" + "".join(f"trial-{number},{number}\n" for number in range(10_000))
    tracemalloc.start()
    spec = parsed(JOB, read(content), tasks_allowed=MOST_ROWS)
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (spec.kind, len(spec.tasks)) == (JobKind.ARRAY, 10_000)
    assert len({id(task) for task in spec.tasks}) == 1
    assert (spec.name_of(0), spec.name_of(9_999)) == ("trial-0", "trial-9999")
    assert kept < 100 * 10_000
    record = codec.SPECS.encode(spec)
    tasks = codec.task_specs.encode(spec.tasks)
    assert len(record) + len(tasks) < 20 * 10_000
    (stored,) = codec.SPECS.decode([f'{{"tasks":[],{record[1:]}'])
    assert replace(stored, tasks=codec.task_specs.decode(tasks)) == spec


def test_tasks_without_a_column_of_names_have_none() -> None:
    spec = parsed(JOB, read("lr\n1\n2\n"))
    assert [spec.name_of(index) for index in range(2)] == ["", ""]
    assert spec.array == ArrayRules(table=TaskTable("ana/" + "ab" * 32))


def test_keys_of_arrays_hold_for_one() -> None:
    spec = parsed(JOB + "concurrency: 2\npilots: 1\non_failure: stop\n", read("lr\n1\n2\n"))
    assert (spec.array.concurrency, spec.array.pilots) == (2, 1)
    assert parsed(JOB + "kind: array\ntasks: 2\n", read("lr\n1\n2\n")).size == 2


@pytest.mark.parametrize(
    ("lines", "key", "words"),
    [
        ("kind: gang\n", "kind", "grid.csv"),
        ("tasks: 3\n", "tasks", "the 2 rows of grid.csv"),
        ("tasks: {least: 1, most: 2}\n", "tasks", "the 2 rows of grid.csv"),
        ("tasks: [{name: a}]\n", "tasks", "the 2 rows of grid.csv"),
        ("envs: {lr: 3}\n", "envs.lr", "grid.csv has a column lr, too"),
    ],
)
def test_what_contradicts_the_table_is_told_where_it_stands(
    lines: str, key: str, words: str
) -> None:
    table = read("lr\n1\n2\n")
    for check in (
        lambda: parsed(JOB + lines, table),
        lambda: check_job(JOB + lines, file_name="sweep.yaml", table=table),
    ):
        with pytest.raises(InvalidJob) as failure:
            check()
        (problem,) = failure.value.problems
        assert (problem.key, problem.line) == (key, 4)
        assert words in problem.message


def test_variables_of_the_command_line_clash_too() -> None:
    with pytest.raises(InvalidJob) as failure:
        check_job(JOB, file_name="sweep.yaml", envs={"lr": "3"}, table=read("lr\n1\n"))
    assert "grid.csv has a column lr, too" in failure.value.message


def test_the_variables_of_a_task_fit_together() -> None:
    envs = "".join(f"  V{number}: {'y' * 100_000}\n" for number in range(8))
    columns = [f"c{number}" for number in range(8)]
    fits, large = (
        read(",".join(columns) + "\n" + ",".join(["x" * size] * 8) + "\n")
        for size in (90_000, 100_000)
    )
    parsed(f"{JOB}envs:\n{envs}", fits)
    with pytest.raises(InvalidJob) as failure:
        parsed(f"{JOB}envs:\n{envs}", large)
    (problem,) = failure.value.problems
    assert "at most 1,572,864 are allowed" in problem.message


def test_the_operators_limit_holds_for_rows() -> None:
    with pytest.raises(LimitExceeded) as failure:
        parsed(JOB, read("lr\n" + "1\n" * 20), tasks_allowed=19)
    assert "20 tasks, and a job may have 19 (limits.tasks_per_job)" in failure.value.message


def test_names_count_among_the_text_of_a_job() -> None:
    plain = job("a", array=True)
    named = replace(plain, array=ArrayRules(table=TaskTable("b", "x" * 1_000)))
    assert named.text == plain.text + 1_000
