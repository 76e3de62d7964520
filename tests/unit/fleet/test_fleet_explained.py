"""What `eva explain` says of a fleet: how soon all can be done, and what its types are worth."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eva_client.cli import main
from eva_master.adapters.rpc.server import reasons
from eva_master.model.catalog import Purchase
from eva_master.model.changes import Round
from eva_master.model.planning.fleet_outlook import FleetOutlook
from eva_policies.hadar import POLICY
from eva_wire._proto import api_pb2 as pb
from eva_wire.values.ids import Family, Millis
from tests.fakes.rpc.api import NOW_MS, FakeApi
from tests.fakes.snapshots import Cluster, offer, task

Run = Callable[..., Result]
HOUR_MS = 3_600_000
SIZES = (1, 1, 1)


def test_a_fleet_policy_says_what_is_read() -> None:
    node = replace(offer("v.1", SIZES, 1, family="v", limit=1), purchase=Purchase.OWNED)
    cluster = Cluster(node).instance("n", "v.1")
    rated = replace(task("w", v=SIZES), throughput=((Family("v"), 1_000_000),))
    for name in ("one", "two"):
        cluster.job(name, rated, left_s=3_600)
    plan, _ = POLICY.build(POLICY.config()).plan(cluster.snapshot(), None)
    told = FleetOutlook.of(plan.figures)
    assert told is not None
    # Two hours of work for one machine.
    assert told.bound_ms == pytest.approx(2 * HOUR_MS, rel=0.01)
    assert told.end_ms is not None
    assert told.end_ms >= told.bound_ms
    assert told.worth_ppm == (("v", 1_000_000),)


def test_figures_that_no_fleet_has_are_left_out() -> None:
    assert FleetOutlook.of({"kind": "full", "moves": 3}) is None
    for wrong in (-1, 2**60, 1.5, "7", True, float("nan")):
        assert FleetOutlook.of({"bound_ms": wrong}) is None
    figures: dict[str, int | float | str] = {"bound_ms": 5, "expected_end_ms": -7}
    figures |= {"worth_ppm:": 1, "worth_ppm:" + "x" * 65: 1, "worth_ppm:bad": "1", "worth_ppm:v": 2}
    assert FleetOutlook.of(figures) == FleetOutlook(5, None, (("v", 2),))
    many = {f"worth_ppm:{number:04}": 1 for number in range(10_000)}
    told = FleetOutlook.of({"bound_ms": 5, **many})
    assert told is not None
    assert len(told.worth_ppm) == 64


def test_a_round_without_such_figures_says_nothing_of_a_fleet() -> None:
    assert reasons.fleet(Round(1, Millis(1), 1, 0, 0, {"kind": "keep"}), {}) is None
    there = {Family("v"): reasons.Machines(2, 8)}
    told = reasons.fleet(Round(7, Millis(9), 1, 0, 0, {"bound_ms": 5, "worth_ppm:v": 3}), there)
    assert told == pb.FleetOutlook(
        round=7,
        at_ms=9,
        bound_ms=5,
        types=[pb.TypeWorth(type="v", worth_ppm=3, machines=2, gpus=8)],
    )


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as api:
        yield api


@pytest.fixture
def eva(api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    api.be_the_only_one(monkeypatch, tmp_path)
    return lambda *arguments: CliRunner().invoke(main, list(arguments))


def outlook() -> pb.FleetOutlook:
    """Of 20 V100s with 60 % of the worth, 20 P100s with 30 %, and CPU machines with the rest."""
    return pb.FleetOutlook(
        round=8,
        at_ms=NOW_MS - 60_000,
        bound_ms=50 * HOUR_MS,
        expected_ms=52 * HOUR_MS,
        types=[
            pb.TypeWorth(type="c7i", worth_ppm=100_000, machines=20),
            pb.TypeWorth(type="gone", worth_ppm=0),
            pb.TypeWorth(type="p100", worth_ppm=300_000, machines=5, gpus=20),
            pb.TypeWorth(type="v100", worth_ppm=600_000, machines=5, gpus=20),
        ],
    )


def test_a_round_says_how_soon_a_fleet_is_done_and_what_types_are_worth(
    eva: Run, api: FakeApi
) -> None:
    api.explanation = pb.Explanation(
        kind="round", subject="8", round=8, at_ms=NOW_MS - 60_000, now_ms=NOW_MS, fleet=outlook()
    )
    told = eva("explain", "--round").stdout
    assert "nobody could be done with everything in less than 2d 2h" in told
    assert "expected to take 2d 4h, 4.0% more" in told
    rows = {line.split()[0]: line.split()[1:] for line in told.splitlines() if line.strip()}
    assert rows["TYPE"] == ["MACHINES", "GPUS", "WORTH", "OF", "EACH"]
    assert rows["v100"] == ["5", "20", "60%", "1"]
    assert rows["p100"] == ["5", "20", "30%", "0.5"]
    assert rows["c7i"] == ["20", "0", "10%", "0.167"]
    assert rows["gone"] == ["0", "0", "0%", "-"]
    shape = json.loads(eva("explain", "--json").stdout)["fleet"]
    assert (shape["bound_ms"], shape["expected_ms"]) == (50 * HOUR_MS, 52 * HOUR_MS)
    assert shape["gap"] == pytest.approx(0.04)
    assert shape["types"][3] == {
        "type": "v100",
        "worth": 0.6,
        "worth_each": 1.0,
        "machines": 5,
        "gpus": 20,
    }


def test_a_job_is_told_what_types_are_worth(eva: Run, api: FakeApi) -> None:
    why = "others cost less to end; its turn is expected within 2 hours"
    job = pb.Job(id="bert-1", state="pending", tasks=[pb.Task(state="waiting", waiting_for=why)])
    api.explanation = pb.Explanation(
        kind="job", subject="bert-1", now_ms=NOW_MS, job=job, fleet=outlook()
    )
    told = eva("explain", "bert").stdout
    assert f"bert-1/0 waits: {why}" in told
    assert "worth of a GPU by type: v100 1, p100 0.5, c7i 0.167 (round 8)" in told


def test_nothing_is_said_of_a_fleet_where_there_is_none(eva: Run, api: FakeApi) -> None:
    api.explanation = pb.Explanation(kind="round", subject="8", round=8, now_ms=NOW_MS)
    assert "nobody could" not in eva("explain").stdout
    assert json.loads(eva("explain", "--json").stdout)["fleet"] is None


def test_the_newest_round_and_another_thing_are_not_asked_for_together(eva: Run) -> None:
    told = eva("explain", "--round", "bert")
    assert told.exit_code == 2
    assert "leave out what else is named" in told.stderr
