"""The least upper bound of revenue: by hand, by enumeration, and above what policies earn."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from eva_lab.simulator.results.revenue_bound import revenue_bound
from eva_lab.traces.fleets.recipes import WorldRecipe
from tests.unit.worlds.small import JOB, world, written


def _bound(tmp_path: Path, *jobs: dict[str, Any], servers: tuple[int, ...] = (2, 2)) -> float:
    path = written(tmp_path, world(*jobs, servers=servers))
    return revenue_bound(WorldRecipe.model_validate({"kind": "world", "file": path}).trace(0, ()))


def test_a_job_alone(tmp_path: Path) -> None:
    # Two workers take two hours for it: all of it is worth what it is after these.
    assert _bound(tmp_path, {}) == pytest.approx(100 - 2 * 2)


def test_jobs_that_are_worth_nothing(tmp_path: Path) -> None:
    assert _bound(tmp_path, {"g": 0.0}) == 0.0


def test_work_of_less_than_a_slot(tmp_path: Path) -> None:
    # 2 of 0.05 hours each, on two workers: 0.05 hours after its arrival at the soonest.
    job = {"minibatch_h": 0.025, "update_h": 0.0, "epochs": 1, "chunks": 2, "k": -100.0}
    found = _bound(tmp_path, job)
    assert found == pytest.approx(100 - 100 * 0.025)


@pytest.mark.parametrize("losses", list(product((-1.0, -5.0), repeat=3)))
def test_against_all_orders(tmp_path: Path, losses: tuple[float, ...]) -> None:
    """Jobs of one worker-hour for one worker, on one worker: the best of all orders."""
    short = {"epochs": 1, "chunks": 1}
    jobs = [{**short, "k": k, "arrival_slot": 1 + n // 2} for n, k in enumerate(losses)]
    found = _bound(tmp_path, *jobs, servers=(1,))
    best = 0.0
    for slots in product(range(1, 6), repeat=len(jobs)):
        late = all(slot >= job["arrival_slot"] for slot, job in zip(slots, jobs, strict=True))
        if late and len(set(slots)) == len(slots):
            pairs = zip(slots, jobs, strict=True)
            worth = sum(JOB["g"] + it["k"] * (at + 1 - it["arrival_slot"]) for at, it in pairs)
            best = max(best, worth)
    assert found == pytest.approx(best)
