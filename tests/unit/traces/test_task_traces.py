"""Traces with past jobs and jobs to run: what is read, what is refused, and what is made of it."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from eva_lab.experiments.runs import cells
from eva_lab.experiments.schema import load_experiment
from eva_lab.traces.recipes import TasksRecipe
from eva_master.adapters.catalog import load_catalog
from eva_master.learning.runtimes import JobFeature, Traits
from eva_master.model.trace import SLOT, Trace
from eva_wire.values.errors import InvalidTrace
from eva_wire.values.ids import Millis
from tests.fakes.traces import published

CATALOG = load_catalog()
PAST = "H 40 u7 etl 9 8 32 145.441\nH 40 u7 etl 10 8 32 99\n"
JOBS = "J 1.5 40 u7 etl 9 8 32 2 2.5 4\nJ\t1.5\t41 u8 web 0 0.5 0 3 1 2 1 \n"
GOOD = PAST + JOBS


def file(folder: Path, text: str, name: str = "some.txt") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def made(path: Path, jobs: int | None = None) -> Trace:
    return TasksRecipe(kind="tasks", file=path, jobs=jobs).trace(0, CATALOG)


def test_a_job_to_run_is_an_array_with_a_duration_of_each_task(tmp_path: Path) -> None:
    trace = made(file(tmp_path, GOOD))
    assert trace.name == "some"
    assert [job.arrival_ms for job in trace.jobs] == [1_500, 1_500]
    assert [job.duration_ms for job in trace.jobs] == [3_250, 1_333]
    lasting = [[task.duration_ms for task in job.tasks] for job in trace.jobs]
    assert lasting == [[2_500, 4_000], [1_000, 2_000, 1_000]]
    assert all(job.is_array for job in trace.jobs)
    assert trace.jobs[1].tasks[0] is trace.jobs[1].tasks[2]
    assert {task.demand for job in trace.jobs for task in job.tasks} == {SLOT}
    assert [(job.owner, job.workload) for job in trace.jobs] == [("u7", "etl"), ("u8", "web")]


def test_past_jobs_teach_of_jobs_of_their_name(tmp_path: Path) -> None:
    trace = made(file(tmp_path, GOOD))
    assert [(job.owner, job.workload, job.mean_ms) for job in trace.past] == [
        ("u7", "etl", 145_441),
        ("u7", "etl", 99_000),
    ]
    assert {job.demand for job in trace.past} == {SLOT}
    names = [job.name for job in trace.past] + [job.id for job in trace.jobs]
    assert len(set(names)) == 4, "each has a name of its own"
    shared = [dict(Traits("w", name, Millis(0), SLOT).values())[JobFeature.NAME] for name in names]
    assert shared[0] == shared[1] == shared[2] != shared[3]


def test_it_may_be_compressed_and_cut_short(tmp_path: Path) -> None:
    packed = tmp_path / "some.txt.gz"
    packed.write_bytes(gzip.compress(GOOD.encode()))
    whole = made(file(tmp_path, GOOD))
    assert made(packed) == whole
    first = made(packed, jobs=1)
    assert (first.jobs, first.past) == (whole.jobs[:1], whole.past)
    assert made(file(tmp_path, JOBS, "none.txt")).past == ()


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("H 1 2 3 4 5 6", "it has 6 words after H, not six features and a run time"),
        ("H 1 2 3 4 5 6 7 8", "it has 8 words after H"),
        ("H 1 2 3 4 5 6 0", "'0' is not a run time, which is more than 0"),
        ("H 1 2 3 4 5 6 nan", "'nan' is not a run time"),
        ("H 1 2 3 4 5 6 -7", "'-7' is not a run time"),
        ("H 1 2 3 4 5 6 1e10", "'1e10' is not a run time"),
        ("H 1 2 3 24 5 6 7", "'24' is not an hour of the day"),
        ("H 1 2 3 1.5 5 6 7", "'1.5' is not an hour of the day"),
        ("H 1 2 3 x 5 6 7", "'x' is not an hour of the day"),
        ("H 1 2 3 4 -5 6 7", "'-5' is not a number of CPUs"),
        ("H 1 2 3 4 5 inf 7", "'inf' is not an amount of memory"),
        ("H a/b 2 3 4 5 6 7", "'a/b' is not the name of a job"),
        (f"H {'a' * 41} 2 3 4 5 6 7", "is not the name of a job: at most 40"),
        ("H 1 2 web[1] 4 5 6 7", "'web[1]' is not an application"),
        ("H 1 .. 3 4 5 6 7", "'..' is not a user"),
        ("h 1 2 3 4 5 6 7", "'h' is neither H"),
        ("J 1 1 2 3 4 5 6", "it lacks arrival, one of six features or number of tasks"),
        ("J 1 1 2 3 4 5 6 2 7", "it has 1 durations, and its number of tasks is 2"),
        ("J 1 1 2 3 4 5 6 1 7 8", "it has 2 durations, and its number of tasks is 1"),
        ("J 1 1 2 3 4 5 6 0", "'0' is no number of tasks from 1 to"),
        ("J 1 1 2 3 4 5 6 2000000 1", "'2000000' is no number of tasks from 1 to 1,000,000"),
        ("J 1 1 2 3 4 5 6 2 7 0.0", "'0.0' is not a run time, which is more than 0"),
        ("J -1 1 2 3 4 5 6 1 7", "'-1' is not an arrival"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, told: str) -> None:
    path = file(tmp_path, f"{PAST}{line}\n{JOBS}")
    with pytest.raises(InvalidTrace) as refused:
        made(path)
    (problem,) = refused.value.problems
    assert (problem.line, told in problem.message) == (3, True), problem
    assert str(path) in refused.value.message


def test_lines_out_of_order_are_refused(tmp_path: Path) -> None:
    early = "J 1.4 40 u7 etl 9 8 32 1 1\n"
    with pytest.raises(InvalidTrace) as refused:
        made(file(tmp_path, GOOD + PAST + early))
    told = [(one.line, one.message) for one in refused.value.problems]
    assert told == [
        (5, "a past job (H) stands after a job to run (J)"),
        (6, "a past job (H) stands after a job to run (J)"),
        (7, "it arrives before the job in a line above"),
    ]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "there is no job to run in it"),
        (PAST.encode(), "there is no job to run in it"),
        (b"\xff 1 1 1", "not a text file"),
        (gzip.compress(GOOD.encode(), mtime=0)[:-9], "it is damaged"),
    ],
    ids=["empty", "past jobs alone", "binary", "cut off"],
)
def test_a_file_of_another_kind_is_refused(tmp_path: Path, data: bytes, told: str) -> None:
    path = tmp_path / "other.txt"
    path.write_bytes(data)
    with pytest.raises(InvalidTrace) as refused:
        made(path)
    assert told in str(refused.value.problems)


def test_experiments_name_it(tmp_path: Path) -> None:
    (tmp_path / "some.txt").write_text(GOOD)
    (tmp_path / "experiment.yaml").write_text(
        "name: some\npolicies: [no_packing]\nseeds: [1, 2]\n"
        "traces:\n  some: {kind: tasks, file: some.txt, jobs: 1}\n"
    )
    plan = load_experiment(tmp_path / "experiment.yaml")
    recipe = plan.experiment.traces["some"]
    assert isinstance(recipe, TasksRecipe)
    assert (recipe.file, recipe.jobs) == (tmp_path / "some.txt", 1)
    before = {cell.digest for cell in cells(plan)}
    assert len(before) == 2, "the reference and the policy, whatever the seed"
    (tmp_path / "some.txt").write_text(GOOD.replace("99", "98"))
    assert not before & {cell.digest for cell in cells(plan)}, "past jobs decide, too"


@pytest.mark.published
@pytest.mark.parametrize("name", ["slearn_2s_6", "slearn_g11_6", "slearn_g19_6"])
def test_made_up_traces_at_a_load_of_one(name: str) -> None:
    """Five thousand past jobs, and work for 150 slots for as long as jobs arrive."""
    trace = made(published() / "traces" / f"{name}.txt.gz")
    assert (len(trace.past), len(trace.jobs)) == (5_000, 1_250)
    assert max(len(job.tasks) for job in trace.jobs) <= 150
    work = sum(task.duration_ms or 0 for job in trace.jobs for task in job.tasks)
    assert work / trace.jobs[-1].arrival_ms / 150 == pytest.approx(1.04, abs=0.06)
