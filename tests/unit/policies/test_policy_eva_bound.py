"""The lower bound from round to round: proven with what the last proof found out."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from benchmarks.packing import PAIRS, snapshot, spread_out, table_of
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.configuration.build import configure, waiting
from eva_master.packing.lp.column_generation import EffortLimits
from eva_master.packing.lp.optimizer import Optimizer, Tier
from eva_master.packing.problem import Problem, Valuation
from eva_master.packing.reconfiguration.lower_bound import bounded
from eva_master.packing.reconfiguration.memory import ReconfigurationMemory
from eva_master.packing.reconfiguration.options import option
from eva_master.policies.eva import POLICY
from eva_master.policies.eva.memory import load
from eva_wire.values.ids import Millis
from tests.fakes.snapshots import carried_out, ended


@pytest.fixture(scope="module")
def crowd() -> Snapshot:
    """Tasks of many sizes that slow each other down."""
    trial = spread_out(40, 3)
    return snapshot(trial, table_of(PAIRS, trial))


@pytest.fixture(scope="module")
def cold(crowd: Snapshot) -> tuple[Plan, PolicyMemory]:
    return decide(crowd)


def decide(picture: Snapshot, memory: PolicyMemory | None = None) -> tuple[Plan, PolicyMemory]:
    return POLICY.build(POLICY.config(iterations=1)).plan(picture, memory)


def journalled(memory: PolicyMemory, **changes: object) -> PolicyMemory:
    """A memory as it comes back from the journal."""
    data = {**json.loads(json.dumps(memory.data)), **changes}
    return PolicyMemory(memory.policy, memory.version, data)


def next_round(crowd: Snapshot, plan: Plan) -> Snapshot:
    """One job has ended meanwhile."""
    running = carried_out(crowd, plan)
    gone = ended(running, running.jobs[0].id)
    return replace(gone, now_ms=Millis(crowd.now_ms + 300_000))


@pytest.mark.long
def test_duals_survive_the_journal_and_shorten_the_next_proof(crowd, cold):
    plan, memory = cold
    after = next_round(crowd, plan)
    warm, _ = decide(after, journalled(memory))
    afresh, _ = decide(after, journalled(memory, duals={}, columns=None, proof=None))
    assert warm.figures["lp_iterations"] < int(afresh.figures["lp_iterations"]) / 2
    assert warm.figures["lower_bound_usd_per_hour"] == pytest.approx(
        afresh.figures["lower_bound_usd_per_hour"], rel=0.01
    )
    for figures in (warm.figures, afresh.figures):
        assert figures["lower_bound_usd_per_hour"] <= figures["cost_usd_per_hour"]


def test_a_memory_without_duals_is_read_too(crowd, cold):
    memory = journalled(cold[1])
    known = load(memory, crowd).rounds.duals.costs
    assert len(known) > 20
    assert min(known.values()) >= 0
    older = {key: value for key, value in memory.data.items() if key not in ("duals", "settled")}
    read = load(replace(memory, data=older), crowd).rounds
    assert (read.duals.costs, read.settled) == ({}, False)
    damaged = load(journalled(cold[1], duals=["x"], settled="yes"), crowd).rounds
    assert (damaged.duals.costs, damaged.settled) == ({}, False)


def test_a_bound_is_proven_further_only_as_long_as_that_helps(crowd):
    problem = Problem(crowd, Valuation())
    present, packed = configure(problem, ()), configure(problem, waiting(problem))
    chosen = option("keep", problem, present, packed)
    memory, bounds = ReconfigurationMemory.afresh(crowd), [0]
    hurried = EffortLimits(iterations=3, multisets=256)
    while not memory.settled:
        assert len(bounds) < 50
        optimizer = Optimizer(problem, Tier.LP, budget=hurried)
        memory, figures = bounded(memory, problem, optimizer, chosen)
        assert figures["lower_bound_usd_per_hour"] <= figures["cost_usd_per_hour"]
        bounds.append(memory.bound)
    assert bounds == sorted(bounds)
    assert bounds[-1] > 1.001 * bounds[1]
    # Once it is as good as it gets nothing is solved any more.
    optimizer = Optimizer(problem, Tier.LP, budget=hurried)
    again, _ = bounded(memory, problem, optimizer, chosen)
    assert (again, optimizer.effort.iterations) == (memory, 0)
