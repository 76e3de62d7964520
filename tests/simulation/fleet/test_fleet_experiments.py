"""Experiments on a fleet of several GPU types, and the benchmark of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks import fleet as benchmark
from eva_lab.experiments.execution import execute
from eva_lab.experiments.runs import Results, cells
from eva_lab.experiments.schema import load_experiment
from eva_lab.experiments.summary import summarise
from eva_wire.values.errors import InvalidConfig

# Two jobs of two GPUs each, and 3,600 s on the faster type; it is twice as fast.
JOBS = "job,workload,gpus,iterations,v100,k80\n0,a,2,7200,1,0.5\n1,b,2,7200,1,0.5\n"
TEXT = """
name: tiny
traces: {t: {kind: gpus, file: t.csv, move: 36s}}
policies: [fifo]
baseline: fifo
fleet: {v100: {servers: 1, gpus: 2}, k80: {servers: 1, gpus: 2, usd_per_hour: 2}}
round_gap: 360s
interference: {pairwise: 1}
"""


def written(folder: Path, text: str = TEXT) -> Path:
    (folder / "t.csv").write_text(JOBS)
    path = folder / "e.yaml"
    path.write_text(text)
    return path


def test_a_run_on_a_fleet_tells_how_far_it_is_above_the_bound(tmp_path: Path) -> None:
    plan = load_experiment(written(tmp_path))
    found, results = cells(plan), Results(tmp_path / "results")
    assert [cell.kind for cell in found] == ["simulation"], "nothing is bought, so no cost is least"
    result = execute(found[0].run)
    assert "error" not in result, result
    results.keep(result)
    (row,) = summarise(plan, found, results).rows
    # One job goes to each type and stays: 1 h and 2 h, and 36 s more each. With free moves both
    # would be done after 4/3 h.
    assert row.figures["total_h"].mean == pytest.approx(2.01)
    assert row.figures["mean_h"].mean == pytest.approx(1.51)
    assert row.figures["bound_h"].mean == pytest.approx(4 / 3)
    assert row.figures["over_bound"].mean == pytest.approx(2.01 * 3 / 4)
    assert row.figures["moves_per_job"].mean == 0


def test_what_the_documentation_shows_can_be_run(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "howto" / "fleets.md").read_text()
    blocks = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (text,) = (block for block in blocks if "traces:" in block)
    (jobs,) = re.findall(r"```\n(job,.*?)```", page, re.DOTALL)
    (tmp_path / "jobs.csv").write_text(jobs)
    (tmp_path / "e.yaml").write_text(text)
    runs = [execute(cell.run) for cell in cells(load_experiment(tmp_path / "e.yaml"))]
    hadar, eva, fifo = runs
    assert hadar["figures"]["total_h"] == eva["figures"]["total_h"]
    # The longer one decides, and starts at once where it is fastest; that takes 10 s.
    longest_h = 502_618 / 4 / 11.3961 / 3_600
    assert eva["figures"]["bound_h"] == pytest.approx(longest_h, rel=1e-4)
    assert eva["figures"]["total_h"] == pytest.approx(longest_h + 10 / 3_600, rel=1e-4)
    assert fifo["figures"]["over_bound"] > 1


def test_another_fleet_is_another_run(tmp_path: Path) -> None:
    path = written(tmp_path, TEXT + "vary: {fleet.k80.servers: [1, 2]}\n")
    assert len({cell.digest for cell in cells(load_experiment(path))}) == 2


@pytest.mark.parametrize(
    ("right", "wrong", "key"),
    [
        ("servers: 1, gpus: 2}", "servers: 0, gpus: 2}", "fleet.v100.servers"),
        ("usd_per_hour: 2", "usd_per_hour: 0", "fleet.k80.usd_per_hour"),
        ("round_gap: 360s", "cluster: {servers: 3}", "cluster"),
        (
            "{v100: {servers: 1, gpus: 2}, k80: {servers: 1, gpus: 2, usd_per_hour: 2}}",
            "{}",
            "fleet",
        ),
    ],
)
def test_what_makes_no_fleet_is_refused(tmp_path: Path, right: str, wrong: str, key: str) -> None:
    assert right in TEXT
    with pytest.raises(InvalidConfig) as refused:
        load_experiment(written(tmp_path, TEXT.replace(right, wrong)))
    assert [problem.key for problem in refused.value.problems] == [key]


def test_the_benchmark_prints_an_object_per_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path)
    fleet = ["--servers", "1", "--gpus", "2", "--move-s", "36", "--json"]
    wanted = ["--policy", "fifo", "--policy", "eva"]
    assert benchmark.main([str(tmp_path / "t.csv"), *fleet, *wanted]) == 0
    fifo, eva = map(json.loads, capsys.readouterr().out.splitlines())
    times = ["total_h", "mean_h", "median_h", "bound_h"]
    shares = ["moves_per_job", "changed_rounds", "used", "nearly_full"]
    keys = ["policy", "round_s", *times, *shares, "cpu_s"]
    assert list(fifo) == list(eva) == keys
    assert (fifo["policy"], fifo["total_h"], fifo["bound_h"]) == ("fifo", 2.01, 1.3333)
    # Both types are held for 1.01 of 2.01 hours, half of the GPUs for the rest.
    assert fifo["nearly_full"] == pytest.approx(1.01 / 2.01, abs=1e-4)
    assert fifo["used"] == pytest.approx((1.01 + 1.00 / 2) / 2.01, abs=1e-4)
    assert eva["total_h"] >= eva["bound_h"] == fifo["bound_h"]


def test_a_slot_is_how_often_there_is_a_plan_and_how_long_a_place_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path)
    (tmp_path / "t.csv").write_text(JOBS + "2,c,4,7200,1,0.5\n")
    fleet = ["--servers", "1", "--gpus", "2", "--move-s", "0", "--json", "--policy", "gavel"]
    assert (
        benchmark.main([str(tmp_path / "t.csv"), *fleet, "--slot-s", "90", "--slot-s", "720"]) == 0
    )
    short, long = map(json.loads, capsys.readouterr().out.splitlines())
    assert (short["round_s"], long["round_s"]) == (90, 720)
    assert short["moves_per_job"] > long["moves_per_job"]


def test_the_benchmark_says_what_is_wrong_with_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(JOBS + "2,c,0,7200,1,0.5\n")
    assert benchmark.main([str(path)]) == 2
    assert f"{path}:4:" in capsys.readouterr().err
