"""Traces of training jobs with a rate on each GPU type: what is read, and what is refused."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from eva_lab.traces.fleets.recipes import GpusRecipe
from eva_master.model.trace import Trace
from eva_wire.values.errors import InvalidTrace

HEADER = "job,workload,gpus,iterations,gpu_hours,category,v100,k80\n"
GOOD = HEADER + "7,ResNet-50-16,2,8000,1.5,M,4,0.5\n1,LM-80,1,300,0.1,S,1,2\n"


def made(folder: Path, text: str, **fields: Any) -> Trace:
    path = folder / "some.csv"
    path.write_text(text)
    return GpusRecipe(kind="gpus", file=path, **fields).trace(0, ())


def test_a_job_is_a_gang_whose_work_takes_longer_on_a_slower_type(tmp_path: Path) -> None:
    trace = made(tmp_path, GOOD)
    assert (trace.name, [job.id for job in trace.jobs]) == ("some", ["1", "7"])
    job = trace.jobs[1]
    assert (job.arrival_ms, len(job.tasks), job.is_array) == (0, 2, False)
    # Each of two GPUs does 4,000 iterations, 4 a second on the faster type.
    assert (job.duration_ms, job.total_steps) == (1_000_000, 4_000)
    speeds = [job.tasks[0].speed_on(family) for family, _ in job.tasks[0].demand_by_family]
    assert speeds == [125_000, 1_000_000]
    assert [need.gpus for _, need in job.tasks[0].resolved(["v100", "k80", "t4"])] == [1, 1]


def test_what_a_start_takes_can_be_said(tmp_path: Path) -> None:
    assert [job.init_ms for job in made(tmp_path, GOOD).jobs] == [10_000, 10_000]
    longer = made(tmp_path, GOOD, move="55s", delay_factor=2, jobs=1)
    assert [job.init_ms for job in longer.jobs] == [110_000]


def test_it_may_be_compressed(tmp_path: Path) -> None:
    packed = tmp_path / "some.csv.gz"
    packed.write_bytes(gzip.compress(GOOD.encode()))
    found = GpusRecipe(kind="gpus", file=packed).trace(0, ())
    assert found == made(tmp_path, GOOD)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("1,a,2,8000,1.5,M,4", "it has 7 columns, and the header has 8"),
        ("1,a,0,8000,1.5,M,4,1", "gpus: '0' is no number above 0"),
        ("1,a,-1,8000,1.5,M,4,1", "gpus: '-1' is no number above 0"),
        ("1,a,1.5,8000,1.5,M,4,1", "gpus: '1.5' is no whole number"),
        ("1,a,1e11,8000,1.5,M,4,1", "gpus: '1e11' is no whole number"),
        ("1,a,2,0,1.5,M,4,1", "iterations: '0' is no number above 0"),
        ("1,a,2,8000,1.5,M,4,0", "k80: '0' is no number above 0"),
        ("1,a,2,8000,1.5,M,-4,1", "v100: '-4' is no number above 0"),
        ("1,a,2,8000,1.5,M,inf,1", "v100: 'inf' is no number above 0"),
        ("1,a,2,8000,1.5,M,nan,1", "v100: 'nan' is no number above 0"),
        ("1,a,2,8000,1.5,M,,1", "v100: '' is no number above 0"),
        (",a,2,8000,1.5,M,4,1", "job is empty"),
        ("7,a,2,8000,1.5,M,4,1", "a second job '7'"),
    ],
)
def test_a_bad_row_is_refused_with_its_line(tmp_path: Path, row: str, told: str) -> None:
    with pytest.raises(InvalidTrace) as refused:
        made(tmp_path, GOOD + row + "\n")
    (problem,) = refused.value.problems
    assert problem.line == 4
    assert problem.message.startswith(told)
    assert f"{tmp_path / 'some.csv'}:4:" in refused.value.message


@pytest.mark.parametrize(
    ("header", "told"),
    [
        ("job,workload,iterations,v100", "there is no column 'gpus'"),
        ("job,workload,gpus,iterations,v100,v100", "the column 'v100' stands twice"),
        ("job,workload,gpus,iterations,category", "there is no column of a GPU type"),
    ],
)
def test_a_bad_header_is_refused(tmp_path: Path, header: str, told: str) -> None:
    with pytest.raises(InvalidTrace) as refused:
        made(tmp_path, header + "\n1,a,2,3,4,5\n")
    assert [one.line for one in refused.value.problems] == [1]
    assert refused.value.problems[0].message.startswith(told)


@pytest.mark.parametrize("text", ["", HEADER])
def test_a_file_without_jobs_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidTrace):
        made(tmp_path, text)
