"""All policies that share a fleet, on fleets and jobs drawn at random, and in the control loop."""

from __future__ import annotations

import json
import random
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from benchmarks import fleet as benchmark
from eva_lab.runs import named_policy
from eva_master.model.resources import Resources
from eva_master.packing.lp.least_time import Need, least_time
from eva_wire.values.ids import Family
from tests.fakes.policies.rounds import Trained, in_rounds

TURNS = ("gavel", "gavel:max-sum", "gavel:makespan", "hadar", "tiresias")


def _drawn(seed: int) -> tuple[dict[str, int], dict[str, Trained]]:
    draw = random.Random(seed)
    fleet = {name: draw.randint(1, 4) for name in ("a", "b", "c")[: draw.randint(1, 3)]}
    jobs = {
        f"j{number}": Trained(
            gpus=draw.choice([1, 1, 2, min(4, sum(fleet.values()))]),
            work=draw.randint(1, 6),
            rates={name: draw.choice([0.5, 1.0, 2.0, 3.0]) for name in fleet},
            arrives=draw.choice([0, 0, 3]),
        )
        for number in range(draw.randint(1, 9))
    }
    rooms = sum(fleet.values())
    return fleet, {name: job for name, job in jobs.items() if job.gpus <= rooms}


@pytest.mark.parametrize("policy", [*TURNS, "yarn_cs"])
@pytest.mark.parametrize("seed", range(6))
def test_all_jobs_end_and_none_sooner_than_the_bound(policy: str, seed: int) -> None:
    fleet, jobs = _drawn(seed)
    # Each plan on the way is checked: capacities, gangs, entries that can be carried out.
    told = in_rounds(named_policy(policy, {})[0], fleet, jobs, most=300)
    assert len(told) < 300, "somebody never has a turn"
    bound = least_time(
        [
            Need(
                {Family(it): Resources(job.gpus) for it in fleet},
                {Family(it): job.work / rate for it, rate in job.rates.items()},
            )
            for job in jobs.values()
        ],
        {Family(it): Resources(size) for it, size in fleet.items()},
    )
    assert bound is not None
    assert len(told) >= ceil(bound.bound_ms - 1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_gavel_has_all_of_a_job_on_one_type_if_one_holds_it(seed: int) -> None:
    fleet, jobs = _drawn(seed)
    for on in in_rounds(named_policy("gavel", {})[0], fleet, jobs, most=300):
        for name, types in on.items():
            assert len(set(types)) == 1 or jobs[name].gpus > max(fleet.values())


JOBS = """job,workload,gpus,iterations,v100,k80
0,a,2,14400,1,0.25
1,a,2,14400,1,0.25
2,b,1,7200,1,0.8
3,b,1,7200,1,0.8
"""
"""On two GPUs of each type: two hours on V100s or eight on K80s; two hours, or two and a half."""


def _on_four_gpus(policy: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    (folder / "jobs.csv").write_text(JOBS)
    words = [str(folder / "jobs.csv"), "--policy", policy, "--servers", "1", "--gpus", "2"]
    assert benchmark.main([*words, "--move-s", "0", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("policy", "most"), [("gavel", 1.3), ("gavel:makespan", 1.01)])
def test_turns_in_the_control_loop(
    policy: str, most: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # 0 and 1 need 4 h of the V100s, but for what they do on the K80s once 2 and 3 have ended, which
    # takes 2.5 h: by the least time 1.2 h, which is 0.3 h of V100s.
    found = _on_four_gpus(policy, tmp_path, capsys)
    assert found["bound_h"] == pytest.approx(3.7)
    assert found["bound_h"] <= found["total_h"] < found["bound_h"] * most
    assert found["moves_per_job"] > 0


def test_a_line_in_the_control_loop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # The first has the K80s for 8 h; the second the V100s for 2 h, and after it the others.
    found = _on_four_gpus("yarn_cs", tmp_path, capsys)
    assert found["total_h"] == pytest.approx(8, abs=0.01)
    assert found["mean_h"] == pytest.approx((8 + 2 + 4 + 4) / 4, abs=0.01)
    assert found["moves_per_job"] == 0
