"""Markets that are made up from a seed."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import pytest
from click.testing import CliRunner

from eva_client.cli import main
from eva_lab.traces.spot.files import read_market, write_market
from eva_lab.traces.spot.made import Climate, made_market, shares
from eva_master.model.fleet.market import Market, Span
from eva_wire.values.ids import MILLIS_PER_HOUR
from tests.unit.spot.test_market_files import CATALOG

CALM = Climate(
    types=[f"type-{number}" for number in range(20)],
    zones=("west-a", "west-b"),
    shocks=0,
    prices=0,
)
STORMY = replace(CALM, shocks=0.5, there_h=20.0)


def lives(spans: tuple[Span, ...]) -> list[float]:
    """How long a pool was there each time, in hours."""
    return [
        (after.start_ms - before.start_ms) / MILLIS_PER_HOUR
        for before, after in pairwise(spans)
        if before.capacity
    ]


def dropped(market: Market) -> list[tuple[int, str]]:
    """When pools went."""
    return [
        (after.start_ms, zone)
        for (_, zone), spans in market.pools.items()
        for before, after in pairwise(spans)
        if before.capacity and not after.capacity
    ]


def test_the_same_seed_makes_the_same() -> None:
    assert made_market(1, STORMY) == made_market(1, STORMY)
    assert made_market(1, STORMY) != made_market(2, STORMY)
    # A pool does not change with what there is beside it, but for the shocks of its region.
    fewer = replace(STORMY, types=STORMY.types[:1])
    alone = made_market(1, fewer).pools
    assert alone.items() <= made_market(1, STORMY).pools.items()


def test_pools_are_there_as_often_and_as_long_as_asked() -> None:
    market = made_market(5, CALM)
    assert fmean(shares(market).values()) == pytest.approx(0.8, abs=0.02)
    found = [life for spans in market.pools.values() for life in lives(spans)]
    assert fmean(found) == pytest.approx(4.0, rel=0.05)
    # Who is young ends soonest: half of all are over long before the mean.
    assert sorted(found)[len(found) // 2] < 0.6 * 4.0
    ageless = made_market(5, replace(CALM, shape=1.0))
    found = [life for spans in ageless.pools.values() for life in lives(spans)]
    assert sorted(found)[len(found) // 2] == pytest.approx(0.69 * 4.0, rel=0.1)


def test_a_shock_takes_the_pools_of_a_region() -> None:
    zones = ("west-a", "west-b", "east-a")
    went = dropped(made_market(7, replace(STORMY, zones=zones, shape=1.0)))
    west = [at for at, zone in went if zone.startswith("west")]
    busiest = max(west, key=lambda start: sum(0 <= at - start <= 600_000 for at in west))
    together = [zone for at, zone in went if 0 <= at - busiest <= 600_000]
    # Of 20 types in two zones 70 % go, of those that are there; and none of another region.
    assert together.count("west-a") + together.count("west-b") > 0.4 * 40
    assert together.count("east-a") <= 2
    calm = dropped(made_market(7, replace(CALM, there_h=20.0, shape=1.0)))
    most = max(sum(0 <= at - start <= 600_000 for at, _ in calm) for start, _ in calm)
    assert most <= 5


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    climate = Climate(types=("p3.2xlarge", "*"), zones=("a", "b"), prices=20.0)
    made = made_market(3, climate)
    write_market(tmp_path / "market.csv", made)
    assert read_market(tmp_path / "market.csv", CATALOG) == made
    assert made.changes_prices
    stated = Market({("*", "a"): (Span(0, 3, price=918_000), Span(1_500, 0, price=1))}, 86_400_000)
    write_market(tmp_path / "stated.csv", stated)
    assert read_market(tmp_path / "stated.csv", CATALOG) == stated


def test_it_is_made_at_the_terminal(tmp_path: Path) -> None:
    target = tmp_path / "market.csv"
    asked = ["trace", "market", "-o", str(target), "--zone", "east-1a", "--days", "2"]
    done = CliRunner().invoke(main, [*asked, "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    (there,) = told["there"].values()
    assert list(told["there"]) == ["*@east-1a"]
    market = read_market(target, CATALOG)
    assert (market.length_ms, list(market.pools)) == (48 * MILLIS_PER_HOUR, [("*", "east-1a")])
    assert there == pytest.approx(shares(market)["*", "east-1a"])
    assert "*@east-1a" in CliRunner().invoke(main, asked).output


@pytest.mark.parametrize(
    "wrong", [("--there", "0s"), ("--away", "x"), ("--price", "130%"), ("--zone", "a,b")]
)
def test_what_is_refused_at_the_terminal(tmp_path: Path, wrong: tuple[str, str]) -> None:
    done = CliRunner().invoke(main, ["trace", "market", "-o", str(tmp_path / "m.csv"), *wrong])
    assert done.exit_code != 0
    assert not (tmp_path / "m.csv").exists()
