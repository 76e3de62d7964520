"""Recipes: the same seed makes the same trace, and its figures are those that were asked for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from eva_client.cli import main
from eva_lab.traces import read_trace
from eva_lab.traces.describe import describe
from eva_lab.traces.recipes import AlibabaRecipe, FileRecipe, ProductionRecipe, WorkloadsRecipe
from eva_lab.traces.shapes import gavel_durations, short_durations
from eva_master.adapters.catalog import load_catalog
from eva_master.model.trace import Trace
from eva_wire.values.errors import InvalidTrace
from eva_wire.values.ids import base_of
from tests.fakes.traces import job, pod, published, write_jobs, write_pods

CATALOG = load_catalog()


def production(seed: int = 1, **fields: Any) -> Trace:
    return ProductionRecipe(kind="production", **fields).trace(seed, CATALOG)


def _pods(path: Path) -> Path:
    """A list in which one job in five has no GPU and one in ten has several."""
    rows = []
    for number in range(200):
        gpus = 0 if number % 5 == 0 else {1: 2, 2: 4, 3: 8}.get(number % 30, 1)
        rows.append(pod(f"p{number}", gpus=gpus, cpus=4_000 + 1_000 * (number % 4)))
    return write_pods(path / "pods.csv", *rows)


def _gpus(trace: Trace) -> list[int]:
    return [one.tasks[0].demand.gpus for one in trace.jobs if one.tasks[0].demand is not None]


def test_a_seed_makes_one_trace_and_another_seed_another() -> None:
    assert production(jobs=300, multi_task=0.2) == production(jobs=300, multi_task=0.2)
    assert production(1).jobs != production(2).jobs


def test_what_one_option_changes_leaves_the_rest_alone() -> None:
    plain, gangs = production(jobs=300), production(jobs=300, multi_task=0.5)
    single = tuple(replace(one, tasks=one.tasks[:1]) for one in gangs.jobs)
    assert plain.jobs == single
    dense = production(jobs=300, gap="10m")
    assert [one.duration_ms for one in dense.jobs] == [one.duration_ms for one in plain.jobs]
    for one, other in zip(dense.jobs, plain.jobs, strict=True):
        assert abs(2 * one.arrival_ms - other.arrival_ms) <= 1


def test_arrivals_are_a_poisson_process() -> None:
    arrivals = np.array([one.arrival_ms for one in production(jobs=20_000).jobs])
    gaps = np.diff(arrivals) / 60_000
    assert gaps.mean() == pytest.approx(20, rel=0.03)
    assert gaps.std() == pytest.approx(20, rel=0.05)


def test_gavel_durations_have_the_distribution_of_the_paper() -> None:
    minutes = np.array(gavel_durations(3, 40_000)) / 60_000
    assert minutes.min() >= 10**1.5
    assert minutes.max() <= 10**4
    assert np.mean(minutes > 1_000) == pytest.approx(0.2, abs=0.01)
    hours = minutes / 60
    found = [hours.mean(), *np.quantile(hours, (0.5, 0.8, 0.95))]
    assert found == pytest.approx([16.7, 4.5, 16.4, 96.6], rel=0.05)  # Table 9


def test_short_durations_have_the_quantiles_of_the_paper() -> None:
    hours = np.array(short_durations(3, 100_000)) / 3_600_000
    found = [hours.mean(), *np.quantile(hours, (0.5, 0.8, 0.95))]
    assert found == pytest.approx([9.1, 0.2, 1.0, 5.2], rel=0.1)  # Table 9


def test_gangs_are_half_of_two_and_half_of_four() -> None:
    sizes = Counter(len(one.tasks) for one in production(jobs=400, multi_task=0.5).jobs)
    assert sizes == {1: 200, 2: 100, 4: 100}


def test_jobs_with_several_gpus_are_five_to_four_to_one(tmp_path: Path) -> None:
    recipe = AlibabaRecipe(kind="alibaba", pods=_pods(tmp_path), multi_gpu=0.4)
    found = Counter(_gpus(recipe.trace(1, CATALOG)))
    assert found == {0: 40, 1: 80, 2: 40, 4: 32, 8: 8}
    nothing = Counter(_gpus(recipe.model_copy(update={"multi_gpu": 0.0}).trace(1, CATALOG)))
    assert nothing == {0: 40, 1: 160}
    made = Counter(_gpus(production(jobs=1_000, multi_gpu=0.5)))
    assert [made[gpus] for gpus in (2, 4, 8)] == [250, 200, 50]


def test_more_jobs_with_several_gpus_than_have_gpus_is_refused(tmp_path: Path) -> None:
    recipe = AlibabaRecipe(kind="alibaba", pods=_pods(tmp_path), multi_gpu=0.9)
    with pytest.raises(InvalidTrace, match="80% of the jobs have GPUs, fewer than 90%"):
        recipe.trace(1, CATALOG)
    only = write_pods(tmp_path / "few.csv", pod("a"), pod("b"))
    with pytest.raises(InvalidTrace, match="no job with 2 GPUs"):
        AlibabaRecipe(kind="alibaba", pods=only, multi_gpu=0.5).trace(1, CATALOG)


def test_every_demand_has_one_workload(tmp_path: Path) -> None:
    trace = AlibabaRecipe(kind="alibaba", pods=_pods(tmp_path)).trace(1, CATALOG)
    by_demand: dict[object, set[str]] = {}
    for one in trace.jobs:
        by_demand.setdefault(one.tasks[0].demand, set()).add(one.workload)
    assert {len(names) for names in by_demand.values()} == {1}
    assert len({one.workload for one in trace.jobs}) == len(by_demand)
    assert all(one.duration_ms == 3_600_000 for one in trace.jobs)


def test_a_list_is_cut_off_and_its_durations_replaced(tmp_path: Path) -> None:
    pods = _pods(tmp_path)
    whole = AlibabaRecipe(kind="alibaba", pods=pods, durations="gavel").trace(1, CATALOG)
    first = AlibabaRecipe(kind="alibaba", pods=pods, jobs=7).trace(1, CATALOG)
    assert (len(whole.jobs), len(first.jobs)) == (200, 7)
    assert min(one.duration_ms for one in whole.jobs) > 30 * 60_000


def test_workloads_bring_their_own_demands_and_tasks() -> None:
    trace = WorkloadsRecipe(kind="workloads", jobs=400).trace(1, CATALOG)
    hours = [one.duration_ms / 3_600_000 for one in trace.jobs]
    assert 0.5 <= min(hours) < 0.6 < 2.9 < max(hours) <= 3
    assert {one.workload for one in trace.jobs} >= {"gcn", "a3c", "resnet18", "diamond"}
    gangs = {one.workload for one in trace.jobs if len(one.tasks) > 1}
    assert gangs == {"resnet18"}
    assert {len(one.tasks) for one in trace.jobs} == {1, 2, 4}
    logs = WorkloadsRecipe(kind="workloads", jobs=4_000, durations="log").trace(1, CATALOG)
    hours = [one.duration_ms / 3_600_000 for one in logs.jobs]
    assert 0.5 <= min(hours) <= max(hours) <= 3
    assert np.mean(hours) == pytest.approx(2.5 / np.log(6), rel=0.03)
    fields: dict[str, Any] = {"kind": "workloads", "jobs": 50, "tasks": 4, "longest": "16h"}
    four = WorkloadsRecipe(**fields).trace(1, CATALOG)
    assert {len(one.tasks) for one in four.jobs} == {4}


def test_iterations_take_as_long_as_the_job() -> None:
    for one in production(jobs=200).jobs:
        step_ms = 1e9 / one.steps_per_s
        took = one.total_steps * step_ms
        assert one.duration_ms - step_ms <= took <= one.duration_ms


def test_slower_moves_leave_the_making_of_images_alone(tmp_path: Path) -> None:
    row = job(init_delay=10)
    row["tasks"]["0"] |= {
        "fetch_delay": 1, "build_image_delay": 5, "kill_delay": 2, "upload_delay": 3,
    }  # fmt: skip
    path = write_jobs(tmp_path / "t.json", _0=row)
    (read,) = FileRecipe(kind="file", file=path, delay_factor=2).trace(0, CATALOG).jobs
    (only,) = read.tasks
    assert (read.init_ms, only.fetch_ms, only.kill_ms, only.upload_ms) == (
        20_000, 2_000, 4_000, 6_000,
    )  # fmt: skip
    assert only.build_ms == 5_000


def test_a_description_says_what_was_asked_for() -> None:
    figures = describe(production(jobs=500, multi_task=0.4), CATALOG)
    assert (figures.jobs, figures.tasks) == (500, 300 + 100 * 2 + 100 * 4)
    assert figures.gang_share == {1: 0.6, 2: 0.2, 4: 0.2}
    assert sum(figures.gpu_share.values()) == pytest.approx(1)
    assert figures.gpu_share[1] == pytest.approx(0.86, abs=0.05)
    assert set(figures.base_share) <= {
        str(base_of(one.workload)) for one in production(jobs=500).jobs
    }


def test_the_cost_alone_is_that_of_the_cheapest_instances(tmp_path: Path) -> None:
    row = job(duration=7_200, tasks={"0": {"demand": {"any": [0, 2, 4]}}})
    trace = read_trace(write_jobs(tmp_path / "t.json", _0=row))
    assert describe(trace, CATALOG).alone_usd == pytest.approx(2 * 0.08925)
    huge = job(tasks={"0": {"demand": {"any": [64, 2, 4]}}})
    homeless = read_trace(write_jobs(tmp_path / "t.json", _0=huge))
    assert describe(homeless, CATALOG).alone_usd is None


@pytest.mark.published
def test_the_published_list_has_the_paper_s_durations() -> None:
    pods = published() / "traces" / "alibaba_gpu_2023_pods.csv"
    figures = describe(AlibabaRecipe(kind="alibaba", pods=pods).trace(1, CATALOG), CATALOG)
    hours = [figures.duration_h[name] for name in ("mean", "median", "p80", "p95")]
    assert hours == pytest.approx([9.1, 0.2, 1.0, 5.2], rel=0.06)  # Table 9


# -- the command -----------------------------------------------------------------------------------


def _run(*arguments: object) -> Any:
    return CliRunner().invoke(main, ["trace", *map(str, arguments)])


def test_a_trace_is_generated_described_and_converted(tmp_path: Path) -> None:
    first, second, lines = (tmp_path / name for name in ("a.json", "b.json", "c.jsonl"))
    options = ("--jobs", 30, "--multi-task", 0.5, "--gap", "5m", "--seed", 9)
    made = _run("generate", "production", *options, "-o", first, "--json")
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["jobs"] == 30
    assert _run("generate", "production", *options, "-o", second).exit_code == 0
    assert first.read_bytes() == second.read_bytes()
    assert _run("convert", first, lines).exit_code == 0
    assert len(lines.read_text().splitlines()) == 30
    assert _run("convert", lines, second).exit_code == 0
    assert first.read_bytes() == second.read_bytes()
    told = _run("describe", lines)
    assert "30 with" in told.stdout
    assert "cost alone" in told.stdout


def test_what_cannot_be_converted_is_refused(tmp_path: Path) -> None:
    """By its name or by an option, in words of the command line."""
    source = tmp_path / "a.json"
    assert _run("generate", "production", "--jobs", 3, "-o", source).exit_code == 0
    told = _run("convert", source, tmp_path / "b.csv")
    assert told.exit_code == 1
    assert "a trace is a .json file" in told.stderr
    for factor, why in (("nan", "'nan' is not a number"), ("1e14", "must be 1000 or less")):
        told = _run("convert", source, tmp_path / "b.json", "--delay-factor", factor)
        assert told.exit_code == 2
        assert "'--delay-factor': " in told.stderr
        assert why in told.stderr
    assert list(tmp_path.iterdir()) == [source]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_what_a_terminal_cannot_show_is_escaped(tmp_path: Path, encoding: str) -> None:
    """Whatever the locale is, a name with other characters does not end the command."""
    file = write_jobs(tmp_path / "t.json", _0=job(name="na\u00efve\u2192\u2713"))
    environ = {**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": "200"}
    command = [sys.executable, "-m", "eva_client.cli", "trace", "describe", str(file)]
    told = subprocess.run(command, env=environ, capture_output=True, check=False)
    assert (told.returncode, told.stderr) == (0, b"")
    assert "na\u00efve\u2192".encode(encoding, "backslashreplace") in told.stdout


def test_a_pod_list_is_converted(tmp_path: Path) -> None:
    target = tmp_path / "t.json"
    assert _run("convert", _pods(tmp_path), target, "--jobs", 5, "--seed", 1).exit_code == 0
    assert len(read_trace(target).jobs) == 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--jobs", "0"), "'--jobs': must be 1 or more"),
        (("--gap", "20"), "'--gap': a duration needs a unit"),
        (("--multi-task", "1.5"), "'--multi-task': must be 1 or less"),
        (("--durations", "own"), "not one of"),
        ((), "Missing option '-o'"),
    ],
)
def test_a_wrong_option_is_named(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    output = ("-o", tmp_path / "t.json") if arguments else ()
    refused = _run("generate", "production", *arguments, *output)
    assert refused.exit_code == 2
    assert message in refused.output


def test_the_traces_of_the_project_are_what_the_command_makes(tmp_path: Path) -> None:
    folder = Path(__file__).parents[3] / "examples" / "traces"
    commands = [
        line.split()
        for line in (folder / "README.md").read_text().splitlines()
        if line.startswith("eva trace generate")
    ]
    assert len(commands) == len(list(folder.glob("*.jsonl"))) == 2
    for command in commands:
        made = tmp_path / command[-1]
        assert _run(*command[2:-1], made).exit_code == 0
        assert made.read_bytes() == (folder / command[-1]).read_bytes()


def test_every_option_is_in_the_help() -> None:
    for kind in ("alibaba", "production", "workloads"):
        told = _run("generate", kind, "--help").output
        assert all(flag in told for flag in ("--seed", "--output", "--gap", "--delay-factor"))
