"""``eva simulate`` at the terminal."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from eva_client.cli import main
from tests.fakes.traces import job, task, write_jobs

TIMED = re.compile(r'"(wall_s|planning_\w+)": [^,}\n]*')
REQUIRED = {
    *("policy", "cost_usd", "nopack_usd", "reference_bound_usd", "jct_mean_h", "jct_p95_h"),
    *("idle_mean_h", "norm_throughput_mean", "migrations_per_job", "instances_launched"),
    *("full_share", "jobs_finished", "wall_s"),
}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Eight jobs of three workloads, an hour or two each."""
    shapes = ([1, 4, 16], [0, 6, 12], [1, 8, 40], [0, 2, 4])
    names = ("gcn[0]", "gpt2[1]", "vit[0]")
    rows = {
        f"_{n}": job(
            name=names[n % 3],
            arrival_time=n * 700,
            duration=3_600 + 900 * (n % 4),
            tasks={"0": task(demand={"any": shapes[n % 4]}, fetch_delay=2, upload_delay=1)},
        )
        for n in range(8)
    }
    return write_jobs(tmp_path / "trace.json", **rows)


def simulate(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, ["simulate", *map(str, arguments)])


def rows(*arguments: str | Path) -> list[dict[str, Any]]:
    result = simulate(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def test_one_object_per_policy(trace: Path) -> None:
    found = rows(trace, "--policy", "no_packing", "--policy", "synergy")
    assert [row["policy"] for row in found] == ["no_packing", "synergy"]
    for row in found:
        assert row.keys() >= REQUIRED
        assert row["jobs_finished"] == 8
        assert row["reference_bound_usd"] <= row["cost_usd"]
    alone, packed = found
    assert alone["cost_usd"] == alone["nopack_usd"] == packed["nopack_usd"]
    assert alone["norm_throughput_mean"] == pytest.approx(1, abs=1e-6)
    assert alone["instances_launched"] == 8
    assert packed["instances_launched"] < 8


def test_the_table_tells_what_it_is_compared_with(trace: Path) -> None:
    result = simulate(trace, "-p", "no_packing", "-p", "synergy")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert lines[0].split()[:2] == ["POLICY", "COST"]
    assert [line.split()[0] for line in lines[1:3]] == ["no_packing", "synergy"]
    assert "100.0%" in lines[1]
    assert "no packing: $" in lines[3]
    assert "lower bound: $" in lines[3]


def test_the_bound_can_be_left_out(trace: Path) -> None:
    (row,) = rows(trace, "-p", "stratus", "--no-reference")
    assert row["reference_bound_usd"] is None
    assert row["nopack_usd"] > 0


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_everything_is_written_down(trace: Path, tmp_path: Path, form: str) -> None:
    (row,) = rows(trace, "-p", "eva_published", "--out", tmp_path / "out", "--format", form)
    folder = tmp_path / "out" / "eva_published"
    names = {"rounds", "moves", "attempts", "jobs", "bills"}
    assert {path.name for path in folder.iterdir()} == {f"{name}.{form}" for name in names}
    read = {name: table(folder / f"{name}.{form}") for name in names}
    assert sum(bill["cost_usd"] for bill in read["bills"]) == pytest.approx(row["cost_usd"])
    assert len(read["bills"]) == row["instances_launched"]
    assert len(read["jobs"]) == 8
    assert len(read["rounds"]) == row["rounds"]
    assert len(read["attempts"]) == 8 + len(read["moves"])


def table(path: Path) -> list[dict[str, Any]]:
    if path.suffix == ".jsonl":
        return [json.loads(line) for line in path.read_text().splitlines()]
    import pyarrow.parquet as pq

    found: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return found


def test_two_processes_say_the_same_byte_for_byte(trace: Path, tmp_path: Path) -> None:
    """Whatever the order of sets in each; times of the real world apart."""

    def run(seed: str) -> tuple[str, dict[str, bytes]]:
        out = tmp_path / seed
        done = subprocess.run(
            [
                *(sys.executable, "-m", "eva_client.cli", "simulate", str(trace)),
                *("-p", "eva_published", "-p", "owl", "--no-reference", "--json"),
                *("--failures", "0.05", "--refusals", "0.1", "--noise", "0.02", "--seed", "7"),
                *("--out", str(out), "--format", "jsonl"),
            ],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=150,
        )
        files = {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*.jsonl")}
        return TIMED.sub("", done.stdout), files

    assert run("1") == run("2")


def test_options_reach_the_policy_and_the_cluster(trace: Path) -> None:
    plain = rows(trace, "-p", "synergy", "--no-reference")[0]
    slower = rows(trace, "-p", "synergy", "--no-reference", "--pairwise", "0.5")[0]
    assert slower["norm_throughput_mean"] < plain["norm_throughput_mean"]
    at_once = rows(trace, "-p", "no_packing", "--no-reference", "--round-gap", "0")[0]
    waiting = rows(trace, "-p", "no_packing", "--no-reference", "--round-gap", "10m")[0]
    assert at_once["idle_mean_h"] < waiting["idle_mean_h"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-p", "best"], "there is no policy 'best'"),
        (["-p", "stratus:fast"], "has no preset 'fast'"),
        (["-p", "stratus", "--set", "nothing=1"], "no policy takes the setting 'nothing'"),
        (["-p", "stratus", "--set", "eva.x=1"], "no policy 'eva' is run"),
        (["--set", "nonsense"], "is not OPTION=VALUE"),
        (["-p", "stratus", "--round-gap", "often"], "is not a duration"),
        (["-p", "stratus", "--stock", "p3.8xlarge"], "is not TYPE=N"),
        (["-p", "stratus", "--only", "x9"], "no instance type or family 'x9'"),
        (["-p", "stratus", "--only", "c7i.large"], "no instance type of the catalog can hold"),
    ],
)
def test_what_is_wrong_is_named(trace: Path, arguments: list[str], said: str) -> None:
    result = simulate(trace, *arguments)
    assert result.exit_code != 0
    assert said in result.stderr


def test_either_a_trace_or_a_journal(trace: Path, tmp_path: Path) -> None:
    assert "name a TRACE" in simulate().stderr
    assert "name a TRACE" in simulate(trace, "--from-journal", tmp_path).stderr
    assert "there is no journal" in simulate("--from-journal", tmp_path).stderr


def test_help_is_complete() -> None:
    text = simulate("--help").stdout
    for word in ("--policy", "--accounting", "--from-journal", "--out", "--seed", "--no-reference"):
        assert word in text
