"""A fleet whose jobs do not state how fast they are on any type: it is learned while they run."""

from __future__ import annotations

from pathlib import Path

import pytest

from eva_lab.experiments.fleet import ServersSection, awaited, fleet_figures, nodes_of
from eva_lab.runs import named_policy
from eva_lab.simulator.run import Setup, Simulation
from eva_lab.traces.fleets.recipes import GpusRecipe
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.trace import Trace
from eva_master.ports import Policy
from eva_wire.values.ids import MILLION, Family, Workload

# "near" hardly gains by a V100, "far" much. Two jobs of two GPUs of each, so servers are full.
LINES = [
    "job,workload,gpus,iterations,v100,k80",
    *(f"{n},near,2,7200,1,0.9" for n in range(4)),
    *(f"{n},far,2,7200,1,0.1" for n in range(4, 8)),
]
FLEET = {name: ServersSection(servers=1, gpus=4) for name in ("v100", "k80")}


class Watched:
    """Keeps what its policy is told of rates."""

    def __init__(self, policy: Policy) -> None:
        self._policy, self.name = policy, policy.name
        self.first: Snapshot | None = None
        self.measured: dict[tuple[Workload, Family], int] = {}

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        if snapshot.runs and self.first is None:
            self.first = snapshot
        self.measured.update(snapshot.standalone.measured)
        return self._policy.plan(snapshot, memory)


def trace(folder: Path, rates: str) -> Trace:
    (folder / "jobs.csv").write_text("\n".join(LINES) + "\n")
    recipe = GpusRecipe.model_validate(
        {"kind": "gpus", "file": folder / "jobs.csv", "move": "10s", "rates": rates}
    )
    return recipe.trace(0, ())


def simulated(jobs: Trace, policy: str) -> tuple[Watched, dict[str, float]]:
    watched = Watched(named_policy(policy)[0])
    gap_ms = 60_000
    setup = Setup(
        awaited(jobs, gap_ms),
        (),
        watched,
        nodes=nodes_of(FLEET),
        round_gap_ms=gap_ms,
        keep_record=True,
    )
    return watched, fleet_figures(Simulation(setup).run(), jobs, FLEET)


@pytest.mark.parametrize("policy", ["eva", "fifo"])
def test_nobody_is_told_and_the_windows_say_it(policy: str, tmp_path: Path) -> None:
    watched, learned = simulated(trace(tmp_path, "learned"), policy)
    assert watched.first is not None
    assert {run.task.throughput for run in watched.first.runs} == {()}
    assert {run.remaining for run in watched.first.runs} == {None}
    # 1 h at the full speed of 1,000 a second; the steps that are left are known nevertheless.
    assert {job.progress.steps_left for job in watched.first.jobs} == {3_600_000}
    truth = {"near": 0.9, "far": 0.1}
    assert watched.measured, "no job of two GPUs is ever alone on a server of four"
    for (workload, family), rate in watched.measured.items():
        speed = truth[workload] if family == "k80" else 1.0
        assert rate == pytest.approx(1_000 * speed * MILLION, rel=0.01)
    assert learned["over_bound"] >= 1


def test_what_is_learned_is_used(tmp_path: Path) -> None:
    _, stated = simulated(trace(tmp_path, "stated"), "eva")
    _, learned = simulated(trace(tmp_path, "learned"), "eva")
    _, never = simulated(trace(tmp_path, "learned"), "fifo")
    assert learned["total_h"] < 0.6 * never["total_h"]
    assert learned["total_h"] < 1.25 * stated["total_h"]
