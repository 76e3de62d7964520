"""``eva simulate --market`` at the terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from eva_client.cli import main
from tests.fakes.traces import job, task, write_jobs

MARKET = """type,zone,from_s,to_s,capacity,price
*,us-west-2a,0,36000,50,30%
*,us-west-2a,36000,72000,0,30%
"""


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    rows = {
        f"_{n}": job(duration=7_200, tasks={"0": task(demand={"any": [0, 2, 4]})}, **spot)
        for n, spot in enumerate([{}, {"spot": "never"}])
    }
    return write_jobs(tmp_path / "jobs.json", **rows)


@pytest.fixture
def market(tmp_path: Path) -> Path:
    path = tmp_path / "market.csv"
    path.write_text(MARKET)
    return path


def simulate(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["simulate", *map(str, arguments), "--policy", "no_packing"])


def figures(*arguments: object) -> dict[str, Any]:
    done = simulate(*arguments, "--json", "--no-reference")
    assert done.exit_code == 0, done.output
    (found,) = json.loads(done.stdout)
    return dict(found)


def test_a_market_makes_it_cheaper_where_jobs_may_use_it(trace: Path, market: Path) -> None:
    on_demand = figures(trace)["cost_usd"]
    # Of two jobs that cost the same one may run there; as many jobs, with boots of the same length.
    assert figures(trace, "--market", market)["cost_usd"] == pytest.approx(0.65 * on_demand)
    never = figures(trace, "--market", market, "--spot", "never")["cost_usd"]
    assert never == pytest.approx(on_demand)


def test_where_the_market_begins(trace: Path, market: Path) -> None:
    dry, on_demand = figures(trace, "--market", market, "--market-offset", "10h"), figures(trace)
    assert dry["cost_usd"] == pytest.approx(on_demand["cost_usd"], rel=0.02)
    # The job that may use spot instances is refused once, and falls back in the next plan.
    assert dry["jct_mean_h"] <= on_demand["jct_mean_h"] + 0.5 * 300 / 3600 + 0.01
    done = simulate(trace, "--market", market, "--market-offset", "20h", "--json")
    assert "begins anew" in done.stderr


def test_what_is_refused(trace: Path, market: Path) -> None:
    alone = simulate(trace, "--market-offset", "1h")
    assert alone.exit_code == 2
    assert "--market" in alone.output
    market.write_text(MARKET + "p9.huge,a,0,72000,1,1\n")
    wrong = simulate(trace, "--market", market)
    assert wrong.exit_code != 0
    assert "unknown type 'p9.huge'" in wrong.output


def test_a_catalog_may_sell_types_as_spot_instances(trace: Path, tmp_path: Path) -> None:
    catalog = tmp_path / "catalog.yaml"
    catalog.write_text(
        "types: {c7i.2xlarge: {spot: {expected_life: 1h, zones: {a: 30%}}}}\nonly: [c7i.2xlarge]\n"
    )
    options = ("--catalog", catalog)
    calm = figures(trace, *options, "--interruptions", 0)
    never = figures(trace, *options, "--spot", "never")
    # Of two jobs that cost the same one may run there.
    assert calm["cost_usd"] == pytest.approx(0.65 * never["cost_usd"])
    # Without a market they are taken back at random, as often as the catalog says.
    moves = [
        figures(trace, *options, "--interruptions", 4, "--seed", seed)["instances_launched"]
        for seed in range(3)
    ]
    assert max(moves) > calm["instances_launched"]


def test_a_limit_of_work_in_a_pool_is_a_part_of_all(trace: Path) -> None:
    wrong = simulate(trace, "--pool-share", "half")
    assert wrong.exit_code == 2
    assert "--pool-share" in wrong.output
