"""Arrays in traces: durations of each task, what is read, written, told and refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from eva_client.cli import main
from eva_lab.simulator.cluster.attempt_log import CoveredTime
from eva_lab.simulator.results.lower_bound import reference_bound
from eva_lab.simulator.results.metrics import SimulationOutcome
from eva_lab.simulator.run import Setup, simulate
from eva_lab.traces import read_trace, write_trace
from eva_lab.traces.describe import describe
from eva_master.adapters.catalog import load_catalog
from eva_master.model.resources import Resources
from eva_master.model.trace import Trace, TraceJob, TraceTask
from eva_master.policies.no_packing import POLICY
from eva_wire.values.bounds import JobKind
from eva_wire.values.errors import InvalidTrace
from eva_wire.values.ids import Family, Workload
from tests.fakes.jobs import offering
from tests.fakes.traces import job, task, write_jobs

ONE = offering(1, 3_600_000)
"""One slot, for a micro-dollar per millisecond, with a minute and ten seconds to boot."""
NEED = Resources(0, 1_000, 1_024)


def array(*durations_ms: int | None, stated_ms: int = 5_000, **more: object) -> TraceJob:
    tasks = tuple(TraceTask(NEED, duration_ms=lasts) for lasts in durations_ms)
    fields: dict[str, object] = {"kind": JobKind.ARRAY, **more}
    return TraceJob("a", Workload("w"), 0, stated_ms, tasks, **fields)  # type: ignore[arg-type]


def ran(*jobs: TraceJob, durations: bool = True) -> SimulationOutcome:
    policy = POLICY.build(POLICY.config())
    setup = Setup(Trace("t", jobs), (ONE,), policy, durations=durations, keep_record=True)
    return simulate(setup)


def moving(outcome: SimulationOutcome) -> dict[str, int]:
    """How long each task made progress."""
    return {one.run: one.moving_ms for one in outcome.record.occupancies}


# -- files -----------------------------------------------------------------------------------------


def test_a_task_may_stand_for_many_with_durations_of_their_own(tmp_path: Path) -> None:
    row = job(
        kind="array",
        concurrency=7,
        duration=2,
        tasks={"0": task(durations=[1, 2.5, 1]), "3": task(count=2), "5": task()},
    )
    (read,) = read_trace(write_jobs(tmp_path / "t.json", _0=row)).jobs
    assert (read.kind, read.concurrency, read.duration_ms) == (JobKind.ARRAY, 7, 2_000)
    assert [one.duration_ms for one in read.tasks] == [1_000, 2_500, 1_000, None, None, None]
    assert read.tasks[0] is read.tasks[2]


def test_a_gang_may_have_tasks_that_are_alike(tmp_path: Path) -> None:
    row = job(tasks={"0": task(count=3)})
    (read,) = read_trace(write_jobs(tmp_path / "t.json", _0=row)).jobs
    assert (read.kind, len(read.tasks)) == (JobKind.GANG, 3)


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
def test_what_is_written_reads_the_same_and_says_it_once(tmp_path: Path, suffix: str) -> None:
    large = TraceTask(Resources(0, 2_000, 1_024))
    tasks = (*array(*[1_000, 2_000] * 500, *[None] * 700).tasks, large, large)
    made = Trace("t", (replace(array(None), tasks=tasks, concurrency=3),))
    path = tmp_path / f"t{suffix}"
    write_trace(made, path)
    assert read_trace(path).jobs == made.jobs
    (row,) = json.loads(path.read_text()).values() if suffix == ".json" else ({"tasks": {}},)
    if suffix == ".json":
        assert list(row["tasks"]) == ["0", "1000", "1700"]
        assert [one.get("count") for one in row["tasks"].values()] == [None, 700, 2]


def test_a_million_tasks_take_a_line_and_little_memory(tmp_path: Path) -> None:
    path = write_jobs(tmp_path / "t.json", _0=job(kind="array", tasks={"0": task(count=10**6)}))
    assert path.stat().st_size < 1_000
    (read,) = read_trace(path).jobs
    assert (len(read.tasks), len(set(map(id, read.tasks)))) == (10**6, 1)


@pytest.mark.parametrize(
    ("row", "key", "message"),
    [
        (job(kind="herd"), "job 17: kind", "must be 'gang' or 'array'"),
        (job(concurrency=2), "job 17: concurrency", "all tasks of a gang run or none does"),
        (job(kind="array", concurrency=0), "job 17: concurrency", "must be 1 or more"),
        (job(kind="array", concurrency=True), "job 17: concurrency", "must be a whole number"),
        (
            job(tasks={"0": task(durations=[1, 2])}),
            "job 17: tasks.0.durations",
            "the tasks of a gang take equally long",
        ),
        (
            job(kind="array", tasks={"0": task(durations=[1, -2])}),
            "job 17: tasks.0.durations[1]",
            "must be 0 or more",
        ),
        (
            job(kind="array", tasks={"0": task(durations=[])}),
            "job 17: tasks.0.durations",
            "must not be empty",
        ),
        (
            job(kind="array", tasks={"0": task(durations=[1, 2], count=2)}),
            "job 17: tasks.0.count",
            "there are as many tasks as durations",
        ),
        (
            job(kind="array", tasks={"0": task(count=1_000_001)}),
            "job 17: tasks.0.count",
            "must be 1000000 or less",
        ),
        (
            job(kind="array", tasks={"0": task(count=10**6), "1": task()}),
            "job 17: tasks",
            "are 1,000,001, and arrays have at most 1,000,000",
        ),
        (
            job(tasks={"0": task(count=10_001)}),
            "job 17: tasks",
            "are 10,001, and gangs have at most 10,000",
        ),
    ],
)
def test_what_is_wrong_about_an_array_is_told_with_its_field(
    tmp_path: Path, row: dict[str, object], key: str, message: str
) -> None:
    path = write_jobs(tmp_path / "t.json", _0=job(), _17=row)
    with pytest.raises(InvalidTrace) as refused:
        read_trace(path)
    (problem,) = refused.value.problems
    assert problem.key == key
    assert message in problem.message


# -- what commands make of it ----------------------------------------------------------------------


def test_a_description_goes_by_the_tasks_own_durations() -> None:
    catalog = load_catalog()
    one = describe(Trace("t", (array(3_600_000, stated_ms=1_000),)), catalog)
    both = describe(Trace("t", (array(3_600_000, 7_200_000, stated_ms=1_000),)), catalog)
    assert one.alone_usd
    assert both.alone_usd == pytest.approx(3 * one.alone_usd)
    assert both.arrays == 1
    assert both.array_task_h is not None
    assert both.array_task_h["mean"] == 1.5


def test_describe_and_convert_know_arrays(tmp_path: Path) -> None:
    row = job(kind="array", tasks={"0": task(durations=[10, 20, 30, 20])})
    source, target = write_jobs(tmp_path / "t.json", _0=row), tmp_path / "u.jsonl"
    told = CliRunner().invoke(main, ["trace", "describe", str(source)])
    assert "1; tasks mean 20.00 s" in " ".join(told.stdout.split())
    done = CliRunner().invoke(main, ["trace", "convert", str(source), str(target)])
    assert done.exit_code == 0, done.output
    assert read_trace(target).jobs == read_trace(source).jobs
    as_json = CliRunner().invoke(main, ["trace", "describe", str(source), "--json"])
    assert json.loads(as_json.stdout)["array_task_h"]["max"] == pytest.approx(30 / 3_600)


def test_a_description_without_arrays_has_no_line_about_them(tmp_path: Path) -> None:
    told = CliRunner().invoke(
        main, ["trace", "describe", str(write_jobs(tmp_path / "t.json", _0=job()))]
    )
    assert "arrays" not in told.stdout


# -- simulations -----------------------------------------------------------------------------------


def test_each_task_takes_as_long_as_it_says_and_ends_by_itself() -> None:
    outcome = ran(array(1_000, 40_000, None))
    assert moving(outcome) == {"a-1/0": 1_000, "a-1/1": 40_000, "a-1/2": 5_000}
    ends = {one.run: one.to_ms for one in outcome.record.occupancies}
    assert ends["a-1/1"] - ends["a-1/0"] == 39_000


def test_an_array_progresses_for_as_long_as_all_its_tasks_together() -> None:
    (told,) = ran(array(1_000, 40_000, None)).record.jobs
    assert (told.alone_ms, told.moving_ms, told.executing_ms) == (46_000, 46_000, 40_000)


def test_no_more_tasks_run_at_a_time_than_the_trace_allows() -> None:
    outcome = ran(array(*[10_000] * 6, concurrency=2))
    changes = [(one.from_ms, 1) for one in outcome.record.occupancies]
    changes += [(one.to_ms, -1) for one in outcome.record.occupancies]
    running = peak = 0
    for _, change in sorted(changes):
        running += change
        peak = max(peak, running)
    assert peak == 2


def test_a_gang_of_the_same_tasks_takes_its_own_duration() -> None:
    outcome = ran(replace(array(1_000, 40_000), kind=JobKind.GANG))
    assert set(moving(outcome).values()) == {5_000}


def test_tasks_that_go_on_for_long_are_no_standstill() -> None:
    """Three hundred tasks of an hour, one at a time: far longer than any of them is waited for."""
    outcome = ran(array(*[3_600_000] * 300, concurrency=1))
    assert outcome.jobs_finished == 1
    assert outcome.end_h > 300


def test_the_bound_counts_each_task_for_its_own_time() -> None:
    trace = Trace("t", (array(1_000, 40_000, None),))
    assert reference_bound(trace, (ONE,)) == pytest.approx(46_000 * 3_600_000, rel=1e-6)


def test_tasks_are_told_apart_by_what_they_need_alone() -> None:
    """Otherwise an array with as many durations as tasks would be as many kinds to a policy."""
    outcome = ran(array(*range(1_000, 1_040)))
    assert outcome.jobs_finished == 1
    assert sorted(moving(outcome).values()) == list(range(1_000, 1_040))


def test_slow_families_take_longer_for_each_task() -> None:
    slow = tuple(
        replace(one, speed_by_family=((Family("c"), 500_000),)) for one in array(1_000, None).tasks
    )
    outcome = ran(replace(array(1_000, None), tasks=slow))
    assert moving(outcome) == {"a-1/0": 2_000, "a-1/1": 10_000}
    (told,) = outcome.record.jobs
    assert told.alone_ms == 12_000


def test_a_span_counts_what_is_covered_twice_once() -> None:
    span = CoveredTime()
    for start, end in ((10, 20), (15, 30), (40, 50), (0, 5), (45, 47), (30, 41), (60, 60)):
        span.add(start, end)
    assert span.covered_ms == 5 + 40
