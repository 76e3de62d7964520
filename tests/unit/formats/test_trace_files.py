"""Readers of traces and of interference: what they make of a file, and what they refuse."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from eva_client.cli import main
from eva_lab.traces import (
    measured_interference,
    read_interference,
    read_trace,
    uniform_interference,
    write_trace,
)
from eva_lab.traces.pods import read_pods
from eva_lab.traces.recipes import ProductionRecipe, WorkloadsRecipe
from eva_master.adapters.catalog import load_catalog
from eva_master.model.resources import Resources
from eva_wire.values.errors import InvalidTrace
from eva_wire.values.ids import Family, Workload
from tests.fakes.traces import job, pod, published, task, write_jobs, write_pods


def _keys(refused: pytest.ExceptionInfo[InvalidTrace]) -> list[str]:
    return [problem.key for problem in refused.value.problems]


def test_a_job_is_read_in_milliseconds_vcpus_and_mib(tmp_path: Path) -> None:
    fields = {"image_id": 7, "fetch_delay": 1.5, "build_image_delay": 10, "kill_delay": 1}
    row = job(
        init_delay=80,
        full_throughput=2.1,
        total_iters=26_103,
        support_throughput_aware=True,
        tasks={"4": task(demand={"any": [1, 12, 16], "c7i": [0, 0.5, 2]}, shm_size=4, **fields)},
    )
    (read,) = read_trace(write_jobs(tmp_path / "t.json", _0=row)).jobs
    assert (read.arrival_ms, read.duration_ms, read.init_ms) == (60_000, 3_600_000, 80_000)
    assert (read.steps_per_s, read.total_steps) == (2_100_000, 26_103)
    (only,) = read.tasks
    assert only.demand == Resources(1, 12_000, 16_384)
    assert only.demand_by_family == ((Family("c7i"), Resources(0, 500, 2_048)),)
    assert (only.image, only.fetch_ms, only.build_ms, only.kill_ms) == ("7", 1_500, 10_000, 1_000)


def test_a_job_that_states_no_iterations_has_as_many_as_fit(tmp_path: Path) -> None:
    row = job(duration=100, full_throughput=0.0249)
    (read,) = read_trace(write_jobs(tmp_path / "t.json", _0=row)).jobs
    assert read.total_steps == 2


def test_a_family_with_null_cannot_host_the_task(tmp_path: Path) -> None:
    row = job(tasks={"0": task(demand={"any": [0, 1, 1], "p3": None})})
    (read,) = read_trace(write_jobs(tmp_path / "t.json", _0=row)).jobs
    resolved = read.tasks[0].resolved([Family("p3"), Family("c7i")])
    assert resolved == ((Family("c7i"), Resources(0, 1_000, 1_024)),)


def test_jobs_come_in_order_of_arrival_and_two_before_ten(tmp_path: Path) -> None:
    path = write_jobs(tmp_path / "t.json", _10=job(), _2=job(), _0=job(arrival_time=61))
    assert [read.id for read in read_trace(path).jobs] == ["2", "10", "0"]


@pytest.mark.parametrize(
    ("row", "key", "message"),
    [
        (job(arrival_time=-1), "job 17: arrival_time", "must be 0 or more"),
        (job(arrival_time="soon"), "job 17: arrival_time", "must be a number"),
        (job(name=""), "job 17: name", "must not be empty"),
        (job(tasks={}), "job 17: tasks", "must not be empty"),
        (job(init_dely=3), "job 17: init_dely", "is no field of this format"),
        (job(total_iters=1.5), "job 17: total_iters", "must be a whole number"),
        (job(tasks={"0": {}}), "job 17: tasks.0.demand", "is missing"),
        (job(tasks={"0": task(kill_delay=-2)}), "job 17: tasks.0.kill_delay", "must be 0 or more"),
        (
            job(tasks={"0": task(demand={"any": [1, 2]})}),
            "job 17: tasks.0.demand.any[2]",
            "is missing",
        ),
        (
            job(tasks={"0": task(demand={"any": [0.5, 2, 4]})}),
            "job 17: tasks.0.demand.any[0]",
            "must be a whole number",
        ),
        (
            job(tasks={"0": task(demand={"p3": None})}),
            "job 17: tasks.0.demand",
            "there is no family that could host it",
        ),
    ],
)
def test_what_is_wrong_is_told_with_job_and_field(
    tmp_path: Path, row: dict[str, object], key: str, message: str
) -> None:
    path = write_jobs(tmp_path / "t.json", _0=job(), _17=row)
    with pytest.raises(InvalidTrace) as refused:
        read_trace(path)
    assert [(one.key, one.message) for one in refused.value.problems] == [(key, message)]
    assert str(path) in refused.value.message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "an object of jobs"),
        ("{}", "an object of jobs"),
        ('{"0": 1, "0": 2}', "the key '0' stands twice"),
        ('{\n"0": }', "2:6: this is not JSON"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_a_file_that_is_no_trace_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(InvalidTrace, match=message):
        read_trace(path)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidTrace, match="No such file"):
        read_trace(tmp_path / "t.json")


def test_of_many_problems_the_first_are_told(tmp_path: Path) -> None:
    rows = {f"_{number}": job(duration=-1) for number in range(50)}
    with pytest.raises(InvalidTrace) as refused:
        read_trace(write_jobs(tmp_path / "t.json", **rows))
    assert len(refused.value.problems) == 21
    assert "and 30 more" in [problem.message for problem in refused.value.problems]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"job": "0"', ":2:.*this is not JSON"),
        ("[]", ":2:1: job: must be text or a number, in an object"),
        ('{"name": "a"}', ":2:1: job: must be text or a number, in an object"),
        ('{"job": "first"}', ":2:1: job: stands twice"),
        ('{"job": "1"}', "4 problems"),
    ],
)
def test_a_wrong_line_is_told_by_its_number(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps({"job": "first", **job()}) + "\n" + line + "\n")
    with pytest.raises(InvalidTrace, match=message):
        read_trace(path)


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
def test_what_is_written_is_read_again(tmp_path: Path, suffix: str) -> None:
    catalog = load_catalog()
    production = ProductionRecipe(kind="production", jobs=60, multi_task=0.3, durations="short")
    for made in (
        production.trace(5, catalog),
        WorkloadsRecipe(kind="workloads", jobs=40).trace(6, catalog),
    ):
        path = tmp_path / f"t{suffix}"
        write_trace(made, path)
        assert read_trace(path).jobs == made.jobs


@pytest.mark.parametrize("name", ["t.csv", "t.yaml", "t", "t.json.gz"])
def test_a_format_that_cannot_be_written_is_refused(tmp_path: Path, name: str) -> None:
    made = WorkloadsRecipe(kind="workloads", jobs=4).trace(6, load_catalog())
    with pytest.raises(InvalidTrace, match=r"a trace is a \.json file") as told:
        write_trace(made, tmp_path / name)
    assert "name it " in told.value.hint
    assert list(tmp_path.iterdir()) == []


def test_what_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    """The file that is there stays, whatever is wrong with the new one."""
    made = WorkloadsRecipe(kind="workloads", jobs=4).trace(6, load_catalog())
    path = tmp_path / "t.json"
    write_trace(made, path)
    before = path.read_bytes()
    first, *others = made.jobs
    for wrong in (
        (),
        (first, first),
        (replace(first, duration_ms=10**15), *others),
        (replace(first, tasks=()), *others),
        (replace(first, workload=Workload("\ud800")), *others),
    ):
        with pytest.raises(InvalidTrace):
            write_trace(replace(made, jobs=wrong), path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.published
def test_published_traces_are_read_whole_and_written_again(tmp_path: Path) -> None:
    for file in sorted((published() / "traces").glob("*.json")):
        trace = read_trace(file)
        rows = json.loads(file.read_text())
        assert len(trace.jobs) == len(rows)
        assert sum(len(one.tasks) for one in trace.jobs) == sum(
            len(row["tasks"]) for row in rows.values()
        )
        write_trace(trace, tmp_path / "t.json")
        assert read_trace(tmp_path / "t.json").jobs == trace.jobs


# -- pod lists -------------------------------------------------------------------------------------


def test_failed_pods_and_those_that_fit_nowhere_are_left_out(tmp_path: Path) -> None:
    path = write_pods(
        tmp_path / "pods.csv",
        pod("a", cpus=7_001, mib=16_385, created=100, deleted=160),
        pod("b", phase="Failed"),
        pod("c", gpus=16),
        pod("d", gpus=0, cpus=1_000, mib=0, phase="Pending", deleted=0),
    )
    first, last = read_pods(path, load_catalog()).shapes
    assert first.demand == Resources(1, 8_000, 17 * 1_024)
    assert first.duration_ms == 60_000
    assert last.demand == Resources(0, 1_000, 0)


@pytest.mark.parametrize(
    ("row", "where"),
    [
        (pod("bad", cpus="many"), ":3:1: bad: cpu_milli: 'many' is not a number"),
        (pod("bad", gpus=-1), ":3:1: bad: num_gpu: -1 is out of range"),
        (pod("bad", mib="nan"), ":3:1: bad: memory_mib: nan is out of range"),
        (pod("bad", created=9, deleted=8), ":3:1: bad: deletion_time: is before creation_time"),
        ("bad", ":3:1: bad: the row has 1 of 11 columns"),
    ],
)
def test_a_wrong_pod_is_told_by_line_and_column(tmp_path: Path, row: str, where: str) -> None:
    path = write_pods(tmp_path / "pods.csv", pod("good"), row)
    with pytest.raises(InvalidTrace) as refused:
        read_pods(path, load_catalog())
    told = [
        f"{refused.value}",
        *(f":{one.line}:{one.column}: {one.key}: {one.message}" for one in refused.value.problems),
    ]
    assert any(re.search(where, one) for one in told), told


def test_a_list_without_a_column_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pods.csv"
    path.write_text("name,num_gpu\na,1\n")
    with pytest.raises(InvalidTrace, match="columns are missing: cpu_milli, memory_mib"):
        read_pods(path, load_catalog())


def test_a_list_of_which_nothing_fits_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidTrace, match="no pod that an instance type could hold"):
        read_pods(write_pods(tmp_path / "pods.csv", pod("a", gpus=64)), load_catalog())


@pytest.mark.published
def test_the_published_list_gives_the_paper_s_jobs() -> None:
    traces = published() / "traces"
    pods = read_pods(traces / "alibaba_gpu_2023_pods.csv", load_catalog()).shapes
    assert len(pods) == 6_274
    first = read_trace(traces / "pai_200.json")
    in_file = sorted(first.jobs, key=lambda one: int(one.id))
    assert [one.tasks[0].demand for one in in_file] == [one.demand for one in pods[:200]]


# -- interference ----------------------------------------------------------------------------------


def test_interference_of_several_is_the_product_over_pairs() -> None:
    table = measured_interference()
    alone = table(Workload("gcn"), ())
    pair = table(Workload("gcn[4]"), (Workload("a3c[1]"),))
    three = table(Workload("gcn[4]"), (Workload("a3c[1]"), Workload("openfoam")))
    assert (alone, pair) == (1.0, 0.647)
    assert three == pytest.approx(0.647 * 0.962)


def test_rows_are_known_under_the_names_that_traces_use() -> None:
    table = measured_interference()
    for alias, row in (("sage", "graphsage"), ("seq", "diamond")):
        for other in ("gcn", "openfoam", "sage", "seq"):
            beside = (Workload(f"{other}[1]"),)
            assert table(Workload(f"{alias}[2]"), beside) == table(Workload(row), beside)
    assert table(Workload("gcn"), (Workload("seq[0]"),)) == 0.953


def test_a_pair_that_was_not_measured_has_the_default() -> None:
    assert measured_interference()(Workload("a3c"), (Workload("vit"),)) == 0.95
    assert uniform_interference(0.8)(Workload("a"), (Workload("b"), Workload("c"))) == (
        pytest.approx(0.64)
    )


def test_a_table_in_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    rows = {"a": {"a": 0.9, "b": None}, "b": {"a": 0.8}}
    path.write_text(json.dumps({"default": 0.7, "throughput": rows}))
    table = read_interference(path)
    assert table(Workload("a"), (Workload("a"),)) == 0.9
    assert table(Workload("a"), (Workload("b"),)) == 0.7
    assert table(Workload("b[1]"), (Workload("a[2]"),)) == 0.8


@pytest.mark.parametrize(
    ("content", "key"),
    [
        ({"throughput": {"a": {"a": 1.5}}}, "key throughput: a.a"),
        ({"throughput": {"a": {"a": 0}}}, "key throughput: a.a"),
        ({"throughput": {"a": {"b": 1}}}, "row a: b"),
        ({"default": 2, "throughput": {}}, "key default"),
        ({}, "key throughput"),
        ({"throughput": {}, "rows": 1}, "key rows"),
    ],
)
def test_a_wrong_table_is_refused_by_row_and_column(
    tmp_path: Path, content: dict[str, object], key: str
) -> None:
    path = tmp_path / "table.json"
    path.write_text(json.dumps(content))
    with pytest.raises(InvalidTrace) as refused:
        read_interference(path)
    assert _keys(refused) == [key]


@pytest.mark.published
def test_the_published_table_is_the_one_that_comes_with_the_project() -> None:
    assert read_interference(published() / "interference.json") == measured_interference()


@pytest.mark.parametrize(
    "command", [["simulate"], ["trace", "describe"], ["experiment"], ["master", "--config"]]
)
def test_a_file_that_is_no_text_is_told_without_a_word_of_python(
    tmp_path: Path, command: list[str]
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"\xff\xfe\x00")
    result = CliRunner().invoke(main, [*command, str(file)])
    assert result.exit_code in (1, 2)
    assert "codec" not in result.output
    assert "not a text file in UTF-8" in result.output
