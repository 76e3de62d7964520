"""``eva experiment`` as users run it: killed in the middle, gone on with, and its report."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from eva_client.cli import main
from tests.fakes.patience import DEADLINE_S

TEXT = """
name: two-seeds
title: Two & more seeds
text: What <this> is about.
traces:
  short: {kind: production, jobs: 6, durations: short}
policies: [no_packing, stratus, synergy]
seeds: [1, 2, 3, 4]
"""

FIGURES = (
    *("cost", "jct", "throughput", "allocation", "tasks", "moves", "instances"),
    *("uptime", "interference"),
)


def run(*arguments: object) -> Any:
    return CliRunner().invoke(main, ["experiment", *map(str, arguments)])


def experiment(folder: Path, text: str = TEXT) -> Path:
    path = folder / "e.yaml"
    path.write_text(text)
    return path


def figures(folder: Path) -> Any:
    """A summary without the figures that are real time."""
    shape = json.loads((folder / "summary.json").read_text())
    for row in shape["rows"]:
        row["figures"] = {
            name: one for name, one in row["figures"].items() if not name.startswith("planning_")
        }
    return shape


@pytest.mark.long
def test_a_sweep_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    text = TEXT.replace("[1, 2, 3, 4]", "[1, 2]")
    path, out, whole = experiment(tmp_path, text), tmp_path / "out", tmp_path / "whole"
    options = ("--out", str(out), "-j2")
    command = [sys.executable, "-m", "eva_client.cli", "experiment", str(path), *options]
    sweep = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while len(list((out / "runs").glob("*.json"))) < 3:
            assert sweep.poll() is None, "it was done before it could be killed"
            assert time.monotonic() < deadline
            time.sleep(0.005)
        helpers = psutil.Process(sweep.pid).children(recursive=True)
        sweep.kill()
        sweep.wait()
        assert helpers
        _, left = psutil.wait_procs(helpers, timeout=DEADLINE_S)
        assert not left, "nobody goes on for a sweep that is no more"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(sweep.pid, signal.SIGKILL)
    done = {file: file.stat().st_mtime_ns for file in (out / "runs").glob("*.json")}
    assert 3 <= len(done) < 8
    torn = min(done)
    torn.write_text(torn.read_text()[:100])
    done.pop(torn)

    again = run(path, "--out", out, "-j", 1, "--backend", "sequential")
    assert again.exit_code == 0, again.output
    assert f"did {8 - len(done)} runs; 0 failed" in again.output
    assert {file: file.stat().st_mtime_ns for file in done} == done
    assert run(path, "--out", whole, "-j", 1, "--backend", "sequential").exit_code == 0
    assert figures(out) == figures(whole)


def test_the_report_has_every_figure_and_needs_no_network(first_seed: tuple[Path, Any]) -> None:
    out, _ = first_seed
    page = (out / "report.html").read_text()
    assert "<title>Two &amp; more seeds</title>" in page
    assert "What &lt;this&gt; is about." in page
    for name in FIGURES:
        assert f'<section id="{name}">' in page
        assert (out / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert page.count("<svg ") == len(FIGURES)
    assert not re.findall(r'(?:src|href)="(?!#|data:)', page), "nothing is fetched"
    names = re.findall(r' id="([^"]+)"', page)
    assert not [name for name, times in Counter(names).items() if times > 1]
    assert set(re.findall(r"url\(#([^)]+)\)", page)) <= set(names)
    for label in ("no_packing", "stratus", "synergy"):
        assert f'<td class="name">{label}</td>' in page


@pytest.fixture(scope="module")
def first_seed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """What one seed left, for tests that copy it, and what was printed."""
    out = tmp_path_factory.mktemp("first-seed")
    one = ("-j", 1, "--backend", "sequential", "--set", "seeds=[1]", "--json")
    done = run(experiment(tmp_path_factory.mktemp("file")), "--out", out, *one)
    assert done.exit_code == 0, done.output
    return out, json.loads(done.stdout)


@pytest.mark.explore
def test_a_report_of_the_same_results_is_the_same(
    tmp_path: Path, first_seed: tuple[Path, Any]
) -> None:
    path, out = experiment(tmp_path), tmp_path / "out"
    shutil.copytree(first_seed[0], out)
    page = (out / "report.html").read_text()
    run(path, "--out", out, "--report-only", "--set", "seeds=[1]")
    assert (out / "report.html").read_text() == page


@pytest.mark.explore
def test_what_is_varied_is_drawn_along_an_axis(tmp_path: Path) -> None:
    text = TEXT.replace("seeds: [1, 2, 3, 4]", "seeds: [1]\nvary: {trace.gap: [5m, 20m]}")
    done = run(experiment(tmp_path, text), "--out", tmp_path, "-j", 1, "--backend", "sequential")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "report.html").read_text()
    assert all(f'<section id="{name}">' in page for name in FIGURES)
    rows = json.loads((tmp_path / "summary.json").read_text())["rows"]
    assert [row["vary"]["trace.gap"] for row in rows] == ["5m"] * 3 + ["20m"] * 3


def test_a_dry_run_tells_and_does_nothing(tmp_path: Path) -> None:
    told = run(experiment(tmp_path), "--out", tmp_path / "out", "--dry-run")
    assert "16 runs, 0 done, 16 to do" in told.output
    assert told.output.count("reference bound") == 4
    assert not (tmp_path / "out").exists()


@pytest.mark.long
def test_runs_that_are_missing_are_told(tmp_path: Path, first_seed: tuple[Path, Any]) -> None:
    path, out = experiment(tmp_path), tmp_path / "out"
    shutil.copytree(first_seed[0], out)
    assert run(path, "--out", out, "--report-only").exit_code == 0
    assert "12 runs are missing." in (out / "report.html").read_text()


def test_json_is_the_summary(first_seed: tuple[Path, Any]) -> None:
    out, shape = first_seed
    assert shape == json.loads((out / "summary.json").read_text())
    row = shape["rows"][1]
    assert (row["policy"], row["runs"]) == ("stratus", 1)
    assert row["figures"]["jobs_finished"]["mean"] == 6


def test_a_run_that_fails_is_told_and_the_others_are_done(tmp_path: Path) -> None:
    bad = {"name": "a", "arrival_time": 0, "duration": 1,
           "tasks": {"0": {"demand": {"any": [64, 1, 1]}}}}  # fmt: skip
    (tmp_path / "bad.json").write_text(json.dumps({"0": bad}))
    text = TEXT.replace("policies:", "  bad: {kind: file, file: bad.json}\npolicies:")
    text = text.replace("[1, 2, 3, 4]", "[1]\nreference: false")
    done = run(experiment(tmp_path, text), "--out", tmp_path, "-j", 1, "--backend", "sequential")
    assert done.exit_code == 1
    assert "no instance type" in done.output
    assert (tmp_path / "report.html").exists()
    kept = list((tmp_path / "runs").glob("*.json"))
    assert len(kept) == 3


def test_a_wrong_file_is_refused_with_its_lines(tmp_path: Path) -> None:
    refused = run(experiment(tmp_path, TEXT.replace("jobs: 6", "jbs: 6")))
    assert refused.exit_code != 0
    assert "did you mean 'jobs'?" in refused.output


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    one = ("-j", 1, "--backend", "sequential", "--set", "seeds=[1]", "--set", "reference=false")
    refused = run(experiment(tmp_path), "--out", tmp_path / "taken" / "out", *one)
    assert refused.exit_code == 1
    assert "Not a directory" in refused.output
