"""Packs many tasks at once: the price per hour, and the time it takes."""

from __future__ import annotations

import time
from typing import Any

from eva_lab.simulator.results.lower_bound import everything
from eva_lab.traces.recipes import Recipe
from eva_master.model.catalog import Catalog
from eva_master.packing.lp.columns import cost
from eva_master.packing.lp.optimizer import Optimizer, Tier
from eva_master.packing.problem import Problem, Valuation
from eva_wire.values.ids import MILLION

ALONE, FULL, NEAR_OPTIMAL, BOUND = "no_packing", "full", "near_optimal", "bound"
"""The planners: each task alone, the paper's Algorithm 1, column generation, its lower bound."""


def packed(recipe: Recipe, seed: int, catalog: Catalog, planner: str) -> dict[str, Any]:
    """Pack all tasks of a trace at once, without interference.

    Returns:
        Figures: dollars per hour as ``cost_usd``, and seconds as ``planning_mean_s``.
    """
    snapshot = everything(recipe.trace(seed, catalog), catalog)
    start = time.perf_counter()
    problem = Problem(snapshot, Valuation(interference=False))
    exact = _alone(problem) if planner == ALONE else _optimised(problem, planner)
    return {
        "cost_usd": exact / MILLION / MILLION,
        "planning_mean_s": time.perf_counter() - start,
    }


def _alone(problem: Problem) -> int:
    return MILLION * sum(problem.classes[number].price for number in problem.class_of.values())


def _optimised(problem: Problem, planner: str) -> int:
    counts = problem.counts(problem.class_of)
    supply = {offering.id: offering.limit for offering in problem.offerings}
    optimizer = Optimizer(problem, Tier.GREEDY if planner == FULL else Tier.LP)
    sets, unpacked = optimizer.pack(counts, supply)
    assert not unpacked.any(), "every task fits somewhere"
    if planner == BOUND:
        return optimizer.bound(counts, supply) or 0
    return cost(problem, sets)
