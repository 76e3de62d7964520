"""The benchmark of readings, and the iterations that simulated jobs of such files count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import hadar_published
from eva_lab.simulator.scenario.submission import spec_of, steps_per_s, total_steps
from eva_lab.traces.fleets.recipes import GpusRecipe
from eva_wire.values.ids import MILLION, Family

JOBS = """job,workload,gpus,iterations,gpu_hours,v100,p100,k80
0,ResNet-50-16,4,40000,1,10,5,2
1,ResNet-18-32,1,36000,2,20,25,5
2,Transformer-64,2,7200,1,2.5,1,0.5
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.csv"
    path.write_text(JOBS)
    return path


def told(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, float]]:
    assert hadar_published.main(arguments) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_reading_is_an_object(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (one,) = told(capsys, "readings", str(file), "--set", "replan=arrivals")
    # Each job runs at once where it is fastest, and takes 0.28, 0.4 and 0.4 hours.
    assert one["total_h"] == pytest.approx(0.4, abs=0.02)
    assert one["median_h"] == pytest.approx(0.4, abs=0.02)
    assert one["replan"] == "arrivals"
    (longer,) = told(capsys, "readings", str(file), "--hours-of", "v100", "--shuffle", "1")
    # Job 1 is there for 2 hours of a V100, which are 1.6 of a P100.
    assert longer["total_h"] == pytest.approx(1.6, abs=0.02)


def test_a_small_round_is_the_optimum(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shares = [it["share"] for it in told(capsys, "optimum", str(file))]
    assert shares == [1.0] * 6


def test_simulated_jobs_count_the_iterations_of_their_file(file: Path) -> None:
    """In thousandths of one: 40,000 of a gang of four are 10,000 of each of its tasks."""
    stated = {"kind": "gpus", "file": file, "counts": "iterations"}
    first = GpusRecipe.model_validate(stated).trace(0, ()).jobs[0]
    assert first.id == "0"
    spec = spec_of(first, [Family(it) for it in ("k80", "p100", "v100")])
    rates = {str(name): rate / MILLION for name, rate in spec.tasks[0].throughput}
    assert rates == pytest.approx({"v100": 10_000, "p100": 5_000, "k80": 2_000})
    assert steps_per_s(first) == pytest.approx(10_000)
    assert total_steps(first) == 10_000_000
