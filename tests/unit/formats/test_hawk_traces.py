"""Traces with a job a line: what is read, what is refused, and what is made of them."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from eva_client.cli import main
from eva_lab.experiments.schema import load_experiment
from eva_lab.traces import read_trace
from eva_lab.traces.recipes import HawkRecipe
from eva_master.adapters.catalog import load_catalog
from eva_master.model.trace import Trace
from eva_wire.values.errors import InvalidTrace
from tests.fakes.traces import published

CATALOG = load_catalog()
GOOD = "1.5 2 3.25 2.5 4\n1.5\t1\t0.0001 0.0001\n9 3 10 8 10 12 \n"


def file(folder: Path, text: str, name: str = "some.tr") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def made(*files: Path, seed: int = 0, **fields: Any) -> Trace:
    return HawkRecipe(kind="hawk", files=files, **fields).trace(seed, CATALOG)


def test_a_line_is_an_array_with_a_duration_of_each_task(tmp_path: Path) -> None:
    trace = made(file(tmp_path, GOOD))
    assert trace.name == "some"
    assert [job.arrival_ms for job in trace.jobs] == [0, 0, 7_500]
    assert [job.duration_ms for job in trace.jobs] == [3_250, 1, 10_000]
    lasting = [[task.duration_ms for task in job.tasks] for job in trace.jobs]
    assert lasting == [[2_500, 4_000], [1], [8_000, 10_000, 12_000]]
    assert all(job.is_array for job in trace.jobs)


def test_it_may_be_compressed(tmp_path: Path) -> None:
    packed = tmp_path / "some.tr.gz"
    packed.write_bytes(gzip.compress(GOOD.encode()))
    assert made(packed) == made(file(tmp_path, GOOD))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("1 2 3 3", "it has 1 durations, and its number of tasks is 2"),
        ("1 1 3 3 3", "it has 2 durations, and its number of tasks is 1"),
        ("1 1", "it lacks arrival, number of tasks or mean duration"),
        ("-1 1 3 3", "'-1' is not an arrival"),
        ("nan 1 3 3", "'nan' is not an arrival"),
        ("inf 1 3 3", "'inf' is not an arrival"),
        ("1 1 3 -3", "'-3' is not a duration"),
        ("1 1 nan 3", "'nan' is not a duration"),
        ("1 1 3 1_0", "'1_0' is not a duration"),
        ("1 0 3", "'0' is no number of tasks from 1 to"),
        ("1 1.5 3 3", "'1.5' is no number of tasks from 1 to"),
        ("1 x 3 3", "'x' is not a number of tasks"),
        ("0.1 1 3 3", "it arrives before the job in the line above"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, told: str) -> None:
    path = file(tmp_path, f"0.5 1 2 2\n{line}\n1 1 2 2\n")
    with pytest.raises(InvalidTrace) as refused:
        made(path)
    (problem,) = refused.value.problems
    assert (problem.line, told in problem.message) == (2, True), problem
    assert str(path) in refused.value.message


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "there is no job in it"),
        (b"\xff 1 1 1", "not a text file"),
        (gzip.compress(GOOD.encode(), mtime=0)[:-9], "it is damaged"),
    ],
    ids=["empty", "binary", "cut off"],
)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, data: bytes, told: str) -> None:
    path = tmp_path / "other.tr"
    path.write_bytes(data)
    with pytest.raises(InvalidTrace) as refused:
        made(path)
    assert told in str(refused.value.problems)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidTrace, match=r"no\.tr"):
        made(tmp_path / "no.tr")


def test_a_load_makes_gaps_shorter_and_nothing_else(tmp_path: Path) -> None:
    path = file(tmp_path, GOOD)
    whole, dense = made(path), made(path, load=2.5)
    assert [job.arrival_ms for job in dense.jobs] == [0, 0, 3_000]
    assert [job.tasks for job in dense.jobs] == [job.tasks for job in whole.jobs]
    assert len(made(path, jobs=2).jobs) == 2


def numbered(folder: Path, name: str, first: int, jobs: int) -> Path:
    """A job lasts as many seconds as its number, and arrives so long after the one before."""
    lines, now = [], 0
    for number in range(first, first + jobs):
        now += number
        lines.append(f"{now} 1 {number} {number}")
    return file(folder, "\n".join(lines), name)


def test_a_bootstrap_is_made_of_stretches_with_their_gaps(tmp_path: Path) -> None:
    files = numbered(tmp_path, "a.tr", 1, 30), numbered(tmp_path, "b.tr", 101, 20)
    wanted = {"jobs": 43, "block": 10}
    trace = made(*files, seed=3, bootstrap=wanted)
    numbers = [job.duration_ms // 1_000 for job in trace.jobs]
    assert len(numbers) == 43
    assert {number > 100 for number in numbers} == {True, False}
    arrivals = [job.arrival_ms // 1_000 for job in trace.jobs]
    for place, (number, at) in enumerate(zip(numbers, arrivals, strict=True)):
        if place % 10:
            assert number == numbers[place - 1] + 1, "a stretch is not torn"
        if place:
            # The first job of a file has no predecessor there.
            assert at - arrivals[place - 1] == (0 if number in (1, 101) else number)
    assert trace == made(*files, seed=3, bootstrap=wanted)
    assert trace != made(*files, seed=4, bootstrap=wanted)
    with pytest.raises(InvalidTrace, match="fewer jobs than a block of 21"):
        made(*files, bootstrap={"jobs": 43, "block": 21})


def test_several_files_want_a_bootstrap(tmp_path: Path) -> None:
    path = file(tmp_path, GOOD)
    with pytest.raises(ValidationError, match="by a bootstrap alone"):
        HawkRecipe(kind="hawk", files=(path, path))


@pytest.mark.published
@pytest.mark.parametrize(
    ("name", "jobs", "tasks", "span_s"),
    [("YH1_sub", 2_910, 122_878, 25_805), ("YH2_sub", 3_363, 137_029, 39_716)],
)
def test_stretches_of_the_yahoo_trace(name: str, jobs: int, tasks: int, span_s: int) -> None:
    """A tenth of the jobs are long, and hold nearly all of the work."""
    trace = made(published() / "traces" / f"{name}.tr.gz")
    assert (len(trace.jobs), sum(len(job.tasks) for job in trace.jobs)) == (jobs, tasks)
    assert trace.jobs[-1].arrival_ms // 1_000 == pytest.approx(span_s, abs=1)
    long = [job for job in trace.jobs if job.duration_ms >= 90_581]
    work = {id(job): sum(task.duration_ms or 0 for task in job.tasks) for job in trace.jobs}
    assert 0.09 < len(long) / jobs < 0.11
    assert 0.98 < sum(work[id(job)] for job in long) / sum(work.values()) < 0.995


def test_it_is_converted_and_named_in_experiments(tmp_path: Path) -> None:
    path, target = file(tmp_path, GOOD), tmp_path / "some.json"
    done = CliRunner().invoke(main, ["trace", "convert", str(path), str(target)])
    assert done.exit_code == 0, done.output
    assert read_trace(target).jobs == made(path).jobs
    (tmp_path / "experiment.yaml").write_text(
        "name: some\npolicies: [no_packing]\n"
        "traces:\n  some: {kind: hawk, files: [some.tr], load: 2}\n"
    )
    recipe = load_experiment(tmp_path / "experiment.yaml").experiment.traces["some"]
    assert isinstance(recipe, HawkRecipe)
    assert recipe.files == (path,)
