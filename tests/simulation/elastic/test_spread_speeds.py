"""Elastic gangs of traces: as fast as their members are many, slower on several instances."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eva_lab.experiments.tenant_worlds import world_setup
from eva_lab.simulator.run import Simulation
from eva_lab.traces.fleets.recipes import WorldRecipe
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.trace import Trace
from eva_master.ports import Policy
from tests.unit.worlds.small import world, written

HOUR_MS = 3_600_000
SPREAD: dict[str, Any] = {"gradient_mb": 225_000.0}
"""Half as fast on several servers."""


def _trace(folder: Path, *jobs: dict[str, Any], servers: tuple[int, ...], **options: Any) -> Trace:
    path = written(folder, world(*jobs, servers=servers))
    recipe = WorldRecipe.model_validate({"kind": "world", "file": path, **options})
    return recipe.trace(0, ())


@pytest.mark.parametrize(
    ("job", "servers", "options", "hours"),
    [
        ({}, (2,), {}, 2),
        (SPREAD, (2,), {}, 2),
        (SPREAD, (1, 1), {}, 4),
        (SPREAD, (1, 1), {"spread": "free"}, 2),
        ({"epochs": 3}, (1, 1), {}, 3),
        (SPREAD, (1,), {}, 4),
    ],
)
def test_how_long_a_gang_takes(
    tmp_path: Path,
    job: dict[str, Any],
    servers: tuple[int, ...],
    options: dict[str, Any],
    hours: int,
) -> None:
    trace = _trace(tmp_path, job, servers=servers, **options)
    outcome = Simulation(world_setup(trace, "gandiva_fair", {}, 3600)).run()
    assert outcome.record.jobs[0].jct_ms == hours * HOUR_MS


class Watched:
    """A policy that notes what snapshots say is left of each job."""

    name = "watched"

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.left: dict[int, dict[str, int]] = {}

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        self.left[snapshot.now_ms // HOUR_MS] = {
            run.job: run.remaining.standalone_ms(snapshot.now_ms) // HOUR_MS
            for run in snapshot.runs
            if run.remaining is not None
        }
        return self._policy.plan(snapshot, memory)


def test_policies_know_how_fast_it_is(tmp_path: Path) -> None:
    """What is left of a gang on two servers runs down as fast as it is there."""
    jobs = {**SPREAD, "epochs": 8}, {"arrival_slot": 7, "epochs": 1, "chunks": 1}
    setup = world_setup(_trace(tmp_path, *jobs, servers=(1, 1)), "gandiva_fair", {}, 3600)
    watched = Watched(setup.policy)
    Simulation(replace(setup, policy=watched)).run()
    assert watched.left[1]["job-00000-1"] == 16
    # For six hours two members did an hour of work each hour.
    assert watched.left[7] == {"job-00000-1": 10, "job-00001-2": 1}
    # From then on one member does, by itself.
    assert watched.left[8]["job-00000-1"] == 9
