"""The benchmark of tenants and the maker of worlds, on small ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.make_world import made
from benchmarks.make_world import main as make
from benchmarks.tenants import main
from eva_lab.experiments.tenant_worlds import alphas_of, money_of, world_setup
from eva_lab.simulator.run import Simulation
from eva_lab.traces.fleets.recipes import WorldRecipe
from eva_lab.traces.fleets.tenant_worlds import World
from eva_master.model.tenants.tenancy import TenantBenefit
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR, Exact
from tests.unit.worlds.small import world, written

_CLUSTERS = 15


def _philly(folder: Path) -> Path:
    lines = ["timestamp,duration,num_gpus,gpu_time,cluster"]
    for n in range(120):
        when, cluster = f"2017-10-{1 + n // 24:02d} {n % 24:02d}:00:00", n % _CLUSTERS
        lines.append(f"{when},60,1,{100 + 900 * cluster},vc{cluster}")
    path = folder / "philly.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_figures_of_a_world(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Jobs of four worker-hours, for two at most; each tenant has two GPUs."""
    path = written(tmp_path, world({}, {"tenant": 1}, {"tenant": 1}))
    assert main([str(path), "--policy", "hived", "--policy", "astraea", "--json"]) == 0
    hived, astraea = map(json.loads, capsys.readouterr().out.splitlines())
    # They are done after 2, 2 and 4 hours. Of all work two thirds may be done after two hours.
    assert hived["revenue"] == astraea["revenue"] == 96 + 96 + 92
    assert hived["bound"] == 96 + 96 + 94
    assert hived["share"] == pytest.approx(284 / 286, abs=1e-4)
    assert (hived["worse_off"], hived["borrowed_jobs"], hived["total_h"]) == (0, 0, 4.0)


def test_a_job_borrows_and_nobody_is_worse_off(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first tenant has no job, so that the two of the second run at once."""
    path = written(tmp_path, world({"tenant": 1}, {"tenant": 1}))
    assert main([str(path), "--policy", "astraea", "--pricing", "none", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["revenue"] == 96 + 96
    assert (found["borrowed_jobs"], found["worse_off"]) == (1, 0)
    assert found["least_gain"] == pytest.approx((96 + 96) / (96 + 92) - 1, abs=1e-4)


def test_a_wrong_world_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, world({"tenant": 9}))
    assert main([str(path)]) == 2
    assert "jobs[0].tenant" in capsys.readouterr().err


def test_worlds_are_made_by_the_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    philly = _philly(tmp_path)
    assert make(["7", "--philly", str(philly), "--jobs", "50", "--servers", "40"]) == 0
    found = World.model_validate_json(capsys.readouterr().out)
    assert (len(found.jobs), len(found.servers), len(found.tenants)) == (50, 40, 14)
    assert sorted(it for one in found.tenants for it in one.servers) == list(range(40))
    assert all(one.workers >= 2 for one in found.tenants)
    slots = [job.arrival_slot for job in found.jobs]
    assert slots == list(range(1, 51))
    first, *_, last = (len(one.servers) for one in found.tenants)
    assert first > last  # as their virtual clusters' GPU time is


def test_other_servers_leave_the_jobs(tmp_path: Path) -> None:
    few, many = (made(7, _philly(tmp_path), 20, servers) for servers in (20, 60))
    assert [{**job, "tenant": 0} for job in few["jobs"]] == [
        {**job, "tenant": 0} for job in many["jobs"]
    ]
    assert few["jobs"] != made(8, _philly(tmp_path), 20, 20)["jobs"]


def test_too_few_servers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert make(["7", "--philly", str(_philly(tmp_path)), "--servers", "3"]) == 2
    assert "servers" in capsys.readouterr().err


def test_tenants_without_jobs_have_their_money(tmp_path: Path) -> None:
    """What is earned counts, also by who has no job; alpha is of those who have some."""
    path = written(tmp_path, world({"tenant": 1}, {"tenant": 1}))
    recipe = WorldRecipe.model_validate({"kind": "world", "file": path})
    trace = recipe.trace(0, ())
    outcome = Simulation(world_setup(trace, "hived", {}, 3600)).run()
    dollar = MILLION * MILLIS_PER_HOUR
    standings = {
        "tenant-000": TenantBenefit(earned=Exact(3 * dollar)),
        "tenant-001": TenantBenefit(paid=Exact(3 * dollar), received=MILLION),
    }
    found = money_of(outcome, trace, standings, 3600)
    assert (found["tenant-000"].net, found["tenant-000"].alone) == (3.0, 0.0)
    assert (found["tenant-001"].net, found["tenant-001"].alone) == (96 + 96 - 3 + 1, 96 + 92)
    # 190 of 193 dollars, to half of the cluster.
    assert alphas_of(trace, found) == {"tenant-001": pytest.approx(190 / 193 / 0.5)}
