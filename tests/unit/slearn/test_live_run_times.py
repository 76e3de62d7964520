"""A trace on a live master with emulated workers: what is run, and what is not run again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import live_run_times
from benchmarks.clockwork_agents import Machine
from benchmarks.harness import Figures
from benchmarks.live_run_times import hastened, main, section
from eva_lab.traces.recipes import TasksRecipe
from eva_master.app.sections.base import OnePolicySection
from eva_master.model.trace import Trace

JOBS = """\
H etl-1 ana etl 4 1 2 50
J 0 1 ana etl 4 1 2 3 40 50 61
J 20 2 bob scan 4 1 2 2 10 0.05
"""


def file(folder: Path) -> Path:
    path = folder / "few.txt"
    path.write_text(JOBS)
    return path


def test_everything_is_so_many_times_faster_and_the_past_is_left_out(tmp_path: Path) -> None:
    trace = hastened(TasksRecipe(kind="tasks", file=file(tmp_path)).trace(1, ()), 100)
    assert trace.past == ()
    taught = hastened(TasksRecipe(kind="tasks", file=file(tmp_path)).trace(1, ()), 100, past=True)
    assert [it.mean_ms for it in taught.past] == [500]
    assert [job.arrival_ms for job in trace.jobs] == [0, 200]
    assert [[it.duration_ms for it in job.tasks] for job in trace.jobs] == [
        [400, 500, 610],
        [100, 1],
    ]
    assert [job.duration_ms for job in trace.jobs] == [503, 50]
    assert section("slearn:las", 200).options == {"first_queue_s": 5}
    assert section("slearn", 10_000).options == {"first_queue_s": 1}


def test_an_emulated_task_takes_what_its_job_is_said_to() -> None:
    machine = Machine("t", 1_000, 64, task_ms=7, tasks_ms={"etl-1": [400, 500]})
    assert [machine.takes_ms(it) for it in ("etl-1-9/1", "etl-1-9/0+1", "etl-9/0")] == [500, 400, 7]


def test_what_was_run_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []

    def live(trace: Trace, chosen: OnePolicySection, slots: int, gap_ms: int) -> Figures:
        assert gap_ms == 1_000
        ran.append(f"{chosen.preset or chosen.name} {len(trace.jobs)} {slots}")
        return {"succeeded": 1 if chosen.preset == "las" else len(trace.jobs), "jct_mean_s": 1.5}

    monkeypatch.setattr(live_run_times, "live", live)
    common = [str(file(tmp_path)), "--results", str(tmp_path / "r"), "--slots", "3", "--json"]
    assert main([*common, "--policy", "slearn:fifo"]) == 0
    capsys.readouterr()
    assert main([*common, "--policy", "slearn:fifo", "--policy", "slearn:las"]) == 1
    figures = json.loads(capsys.readouterr().out)
    assert ran == ["fifo 2 3", "las 2 3"]
    assert figures["missed"] == ["slearn:las"], "not all of its jobs succeeded"
    assert [it["policy"] for it in figures["policies"]] == ["slearn:fifo", "slearn:las"]
    assert all(it["simulated_jct_mean_s"] > 0 for it in figures["policies"])
    assert main([*common, "--policy", "slearn:fifo", "--faster", "100"]) == 0
    assert ran[2:] == ["fifo 2 3"], "another speed is another run"


@pytest.mark.explore
def test_a_few_jobs_run_on_a_live_master(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = [str(file(tmp_path)), "--results", str(tmp_path / "r"), "--slots", "3", "--json"]
    assert main([*common, "--policy", "slearn:3sigma", "--faster", "20", "--with-past"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["policies"]
    assert row["succeeded"] == 2
    assert row["jct_mean_s"] > 0.5 * row["simulated_jct_mean_s"]
