"""Generated jobs that recur: how far pilots and earlier jobs mislead, and how bursty they are."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from eva_client.cli import main
from eva_lab.traces import read_trace, write_trace
from eva_lab.traces.recipes import RecurrentRecipe
from eva_master.adapters.catalog import load_catalog
from eva_master.model.trace import Trace
from eva_wire.values.errors import InvalidTrace
from tests.fakes.traces import job, write_jobs

CATALOG = load_catalog()
SLOTS = 150


def made(seed: int = 1, **fields: Any) -> Trace:
    return RecurrentRecipe(kind="recurrent", **fields).trace(seed, CATALOG)


def base(name: str) -> str:
    return name.rpartition("-")[0]


def seconds(trace: Trace) -> list[list[float]]:
    """How long each task of each job takes."""
    return [[(task.duration_ms or 0) / 1_000 for task in one.tasks] for one in trace.jobs]


def pilot_error(trace: Trace) -> float:
    """Median over wide jobs of the error of 3 % of their tasks."""
    rng = np.random.default_rng(7)
    errors = []
    for times in seconds(trace):
        if len(times) >= 3:
            sample = rng.choice(times, max(1, round(0.03 * len(times))), replace=False)
            errors.append(abs(float(np.mean(sample)) / float(np.mean(times)) - 1))
    return float(np.median(errors))


def history_error(trace: Trace) -> float:
    """Median over wide jobs of the error of the median of the last 20 jobs of the name."""
    known: dict[str, list[float]] = defaultdict(list)
    for one in trace.past:
        known[base(one.name)].append(one.mean_ms / 1_000)
    errors = []
    for one, times in zip(trace.jobs, seconds(trace), strict=True):
        before, mean = known[base(one.id)], float(np.mean(times))
        if len(times) >= 3 and len(before) >= 3:
            errors.append(abs(float(np.median(before[-20:])) / mean - 1))
        before.append(mean)
    return float(np.median(errors))


def windows(trace: Trace) -> list[float]:
    """The work that arrives in each window of 1,000 s, as a share of what the slots can do."""
    arrivals = np.array([one.arrival_ms / 1_000 for one in trace.jobs])
    work = np.array([sum(times) for times in seconds(trace)])
    starts = np.arange(0, arrivals[-1] - 1_000, 100)
    return [
        float(work[(arrivals >= start) & (arrivals < start + 1_000)].sum()) / 1_000 / SLOTS
        for start in starts
    ]


@pytest.mark.parametrize(
    ("flavour", "pilots", "history"),
    [
        ("2sigma", (0.14, 0.18), (0.37, 0.49)),
        ("google2011", (0.05, 0.09), (0.17, 0.25)),
        ("google2019", (0.17, 0.21), (0.64, 0.80)),
    ],
)
def test_errors_are_near_those_of_the_paper(
    flavour: str, pilots: tuple[float, float], history: tuple[float, float]
) -> None:
    traces = [made(seed, flavour=flavour) for seed in (1, 2, 3)]
    assert pilots[0] <= float(np.mean([pilot_error(one) for one in traces])) <= pilots[1]
    assert history[0] <= float(np.mean([history_error(one) for one in traces])) <= history[1]


@pytest.mark.parametrize("flavour", ["2sigma", "google2011", "google2019"])
def test_work_arrives_in_bursts_at_the_load(flavour: str) -> None:
    trace = made(2, flavour=flavour)
    span_s = trace.jobs[-1].arrival_ms / 1_000
    assert sum(map(sum, seconds(trace))) / span_s / SLOTS == pytest.approx(1.04, rel=0.001)
    found = windows(trace)
    assert 0.1 <= float(np.quantile(found, 0.5)) <= 0.7
    assert 2 <= float(np.quantile(found, 0.9)) <= 3


def test_many_jobs_are_thin_and_none_is_wider_than_150() -> None:
    widths = np.array([len(one.tasks) for one in made(flavour="2sigma").jobs])
    assert widths.max() == 150
    assert float((widths < 3).mean()) == pytest.approx(0.19, abs=0.04)
    assert float((widths == 4).mean()) == pytest.approx(0.41, abs=0.04)


@pytest.mark.parametrize(
    ("flavour", "longer", "near"), [("2sigma", 0.16, 0.4), ("google2011", 0.06, 0.25)]
)
def test_few_runs_of_a_group_take_far_longer(flavour: str, longer: float, near: float) -> None:
    """In 2sigma some of the usual runs take twice as long, too."""
    trace = made(flavour=flavour, past=20_000, jobs=1)
    groups: dict[str, list[int]] = defaultdict(list)
    for one in trace.past:
        groups[base(one.name)].append(one.mean_ms)
    ratios = np.concatenate(
        [np.array(times) / np.median(times) for times in groups.values() if len(times) > 20]
    )
    assert float((ratios > 2).mean()) == pytest.approx(longer, abs=0.03)
    assert float(np.quantile(np.abs(np.log(ratios)), 0.5)) < near


def test_a_group_has_one_user_and_one_application() -> None:
    trace = made(jobs=300, past=300)
    owners = defaultdict(set)
    for one in trace.past:
        owners[base(one.name)].add((one.owner, one.workload))
    for other in trace.jobs:
        owners[base(other.id)].add((other.owner, other.workload))
    assert {len(found) for found in owners.values()} == {1}
    assert len(owners) < 300


def test_a_seed_makes_one_trace_and_options_change_their_part_alone() -> None:
    plain = made(jobs=50, past=20)
    assert plain == made(jobs=50, past=20)
    assert plain != made(2, jobs=50, past=20)
    dense = made(jobs=50, past=20, load=2.08)
    assert [one.tasks for one in dense.jobs] == [one.tasks for one in plain.jobs]
    assert dense.past == plain.past
    last = plain.jobs[-1].arrival_ms
    assert dense.jobs[-1].arrival_ms == pytest.approx(last / 2, abs=2)
    assert made(jobs=1, past=0).jobs[0].arrival_ms == 0


@pytest.mark.parametrize("name", ["some.json", "some.jsonl"])
def test_files_keep_past_jobs(tmp_path: Path, name: str) -> None:
    trace = made(jobs=20, past=30)
    write_trace(trace, tmp_path / name)
    read = read_trace(tmp_path / name)
    assert (read.past, read.jobs) == (trace.past, trace.jobs)


def test_a_file_of_past_jobs_alone_is_refused(tmp_path: Path) -> None:
    path = write_jobs(tmp_path / "t.json", _0=job(past=True))
    with pytest.raises(InvalidTrace) as refused:
        read_trace(path)
    assert "none to run" in refused.value.problems[0].message


def test_the_command_line_generates_and_converts_them(tmp_path: Path) -> None:
    target = tmp_path / "t.json"
    options = ["--jobs", "20", "--past", "30", "--flavour", "google2011", "--seed", "3"]
    command = ["trace", "generate", "recurrent", *options, "-o", str(target), "--json"]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["jobs"], found["past"]) == (20, 30)
    assert read_trace(target).jobs == made(3, jobs=20, past=30, flavour="google2011").jobs
    (tmp_path / "s.txt").write_text("H a me web 0 1 1 5\nJ 0 a me web 0 1 1 1 5\n")
    done = CliRunner().invoke(main, ["trace", "convert", str(tmp_path / "s.txt"), str(target)])
    assert done.exit_code == 0, done.output
    (earlier,) = read_trace(target).past
    assert (earlier.owner, earlier.name, earlier.mean_ms) == ("me", "a-job-1", 5_000)
