"""``python -m benchmarks.spot`` over a scenario that states all that a run needs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import spot
from tests.fakes.traces import job, task, write_jobs

MARKET = """type,zone,from_s,to_s,capacity,price
*,us-west-2a,0,36000,50,30%
*,us-west-2a,36000,72000,0,30%
"""
SCENARIO = """
trace: {folder}/jobs.json
market: {folder}/market.csv
policies: [no_packing]
rules: [learned, on_demand]
deadline: {factor}
offsets: [0h, 10h]
"""
COLUMNS = {
    *("scenario", "policy", "offset", "cost_usd", "on_demand_usd", "bound_usd", "saved"),
    *("missed", "infeasible", "late_s_max", "interruptions", "refused", "moves", "wait_h"),
    *("spot_h", "on_demand_h", "gpu_used", "jct_mean_h", "plan_p99_s", "wall_s"),
}


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    rows = {
        f"_{n}": job(duration=7_200, tasks={"0": task(demand={"any": [0, 2, 4]})}) for n in range(2)
    }
    write_jobs(tmp_path / "jobs.json", **rows)
    (tmp_path / "market.csv").write_text(MARKET)
    path = tmp_path / "small.yaml"
    path.write_text(SCENARIO.format(folder=tmp_path, factor=2))
    return path


def test_each_offset_and_rule_has_a_row(scenario: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert spot.main([str(scenario), "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["offset"], row["rule"]) for row in rows] == [
        (offset, rule) for offset in ("0h", "10h") for rule in ("learned", "on_demand")
    ]
    for row in rows:
        assert set(row) >= COLUMNS
        assert (row["missed"], row["infeasible"]) == (0, 0)
        assert row["bound_usd"] <= row["cost_usd"]
        if row["rule"] == "on_demand":
            assert row["cost_usd"] == row["on_demand_usd"]
            assert row["spot_h"] == 0
    there, dry = (row for row in rows if row["rule"] == "learned")
    assert there["cost_usd"] == pytest.approx(0.3 * there["on_demand_usd"], abs=0.006)
    assert there["on_demand_h"] == 0
    assert dry["refused"] > 0


def test_deadlines_that_nobody_could_keep_are_counted_and_left_out(
    scenario: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Half an hour is added: what is left for the work is half of it.
    arguments = ["--deadline", "0.25", "--offset", "0h", "--rule", "learned", "--json"]
    assert spot.main([str(scenario), *arguments]) == 0
    row = json.loads(capsys.readouterr().out)
    assert (row["infeasible"], row["missed"]) == (2, 0)
