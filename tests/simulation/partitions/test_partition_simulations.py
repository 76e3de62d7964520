"""Simulations and experiments are divided into partitions, and tell these apart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from eva_client.cli import main
from eva_lab.experiments.execution import execute
from eva_lab.experiments.runs import Results, cells
from eva_lab.experiments.schema import load_experiment
from eva_lab.experiments.summary import summarise
from eva_lab.reports.page import write_report
from eva_wire.values.errors import InvalidConfig
from tests.fakes.traces import job, task, write_jobs

PARTS = """\
partitions:
  quick:
    policy: {name: no_packing}
    offerings: {families: [c7i]}
    rule: {duration: {below: 30m}}
  main: {default: true, policy: {name: stratus, short: {name: no_packing, below: 45m}}}
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Six jobs, every other one of twenty minutes and the others of an hour."""
    rows = {
        f"_{n}": job(
            name="gcn[0]",
            arrival_time=n * 100,
            duration=1_200 if n % 2 else 3_600,
            tasks={"0": task(demand={"any": [0, 2, 4]})},
        )
        for n in range(6)
    }
    return write_jobs(tmp_path / "trace.json", **rows)


def simulated(trace: Path, *arguments: str | Path) -> dict[str, Any]:
    told = ["simulate", str(trace), "--no-reference", "--json", *map(str, arguments)]
    result = CliRunner().invoke(main, told)
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)
    found: dict[str, Any] = row
    return found


def parts_of(row: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    return {one["partition"]: one for one in row["partitions"]}


def test_a_simulation_is_divided_as_a_master_would_be(trace: Path, tmp_path: Path) -> None:
    file, out = tmp_path / "master.yaml", tmp_path / "out"
    file.write_text(f"cluster: shown\n{PARTS}")
    row = simulated(trace, "-p", "eva", "--partitions", file, "--out", out, "--format", "jsonl")
    parts = parts_of(row)
    assert {name: one["jobs"] for name, one in parts.items()} == {"quick": 3, "main": 3}
    assert sum(one["cost_usd"] for one in parts.values()) == pytest.approx(row["cost_usd"])
    jobs = [json.loads(line) for line in (out / "eva" / "jobs.jsonl").read_text().splitlines()]
    assert {one["alone_ms"]: one["partition"] for one in jobs} == {
        1_200_000: "quick",
        3_600_000: "main",
    }
    rounds = [json.loads(line) for line in (out / "eva" / "rounds.jsonl").read_text().splitlines()]
    assert {one["plan_partition"] for one in rounds} == {"quick", "main"}
    again = simulated(trace, "-p", "eva", "--partitions", file)
    assert parts_of(again) == parts
    text = CliRunner().invoke(
        main, ["simulate", str(trace), "-p", "eva", "--partitions", str(file), "--no-reference"]
    )
    assert "PARTITION" in text.stdout
    assert "partitions" not in simulated(trace, "-p", "stratus")


def test_one_partition_is_like_none(trace: Path, tmp_path: Path) -> None:
    file = tmp_path / "master.yaml"
    file.write_text("partitions: {all: {default: true}}\n")
    alone, divided = (
        simulated(trace, "-p", "stratus"),
        simulated(trace, "-p", "stratus", "--partitions", file),
    )
    same = ("cost_usd", "jct_mean_h", "idle_mean_h", "instances_launched", "migrations_per_job")
    assert {key: divided[key] for key in same} == {key: alone[key] for key in same}
    assert parts_of(divided)["all"]["jobs"] == 6


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("partitions: {a: {}}", "no partition is for the jobs"),
        ("partitions: {a: {default: true, offerings: {families: [x]}}}", "nothing is sold"),
        ("partitions: {a: {default: true, policy: {name: evan}}}", "no policy"),
        ("cluster: x", "partitions"),
    ],
)
def test_partitions_that_cannot_be_are_refused(
    trace: Path, tmp_path: Path, text: str, words: str
) -> None:
    file = tmp_path / "master.yaml"
    file.write_text(text)
    told = CliRunner().invoke(main, ["simulate", str(trace), "--partitions", str(file)])
    assert told.exit_code != 0
    assert isinstance(told.exception, InvalidConfig) or words in told.output
    assert words in f"{told.output}{told.exception}"


def experiment(tmp_path: Path, trace: Path, more: str) -> Path:
    file = tmp_path / "e.yaml"
    file.write_text(
        f"name: parts\ntraces: {{t: {{kind: file, file: {trace}}}}}\n"
        f"policies: [no_packing]\nreference: false\n{more}"
    )
    return file


def test_an_experiment_reports_each_partition(trace: Path, tmp_path: Path) -> None:
    plan = load_experiment(experiment(tmp_path, trace, PARTS))
    whole = load_experiment(experiment(tmp_path, trace, ""))
    (cell,), (undivided,) = cells(plan), cells(whole)
    assert cell.digest != undivided.digest
    assert "partitions" not in undivided.run.definition
    results = Results(tmp_path / "results")
    result = execute(cell.run)
    assert "error" not in result, result
    results.keep(result)
    figures = result["figures"]
    assert (figures["quick/jobs"], figures["main/jobs"]) == (3, 3)
    costs = figures["quick/cost_usd"] + figures["main/cost_usd"]
    assert costs == pytest.approx(figures["cost_usd"])
    summary = summarise(plan, [cell], results)
    assert summary.rows[0].shape()["figures"]["quick/jobs"]["mean"] == 3
    page = write_report(summary, tmp_path / "report").read_text()
    assert "Figures of each partition" in page
    assert page.count(">quick<") == 1


def test_an_experiments_partitions_are_checked_with_line_and_key(
    trace: Path, tmp_path: Path
) -> None:
    text = "partitions:\n  a: {default: true}\n  b: {default: true}\n"
    with pytest.raises(InvalidConfig) as refused:
        load_experiment(experiment(tmp_path, trace, text))
    (problem,) = refused.value.problems
    assert (problem.line, problem.key) == (7, "partitions.b.default")
