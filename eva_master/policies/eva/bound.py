"""The lower bound of a round: what no scheduler can pay less than for the same tasks."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from eva_master.model.ids import MILLION
from eva_master.packing.configuration import Configuration, lost, price, supply
from eva_master.packing.optimizer import Optimizer
from eva_master.packing.problem import Problem
from eva_master.policies.eva.memory import Memory, digest

_UNIT = MILLION * MILLION


def bounded(
    memory: Memory, problem: Problem, optimizer: Optimizer, configuration: Configuration
) -> tuple[Memory, dict[str, int | float | str]]:
    """Compare a configuration with the lower bound, for the round's figures.

    The bound is for the tasks that have a place, as if none of them ran anywhere yet. It is solved
    anew only when tasks, prices or the co-location table have changed.

    Args:
        memory: Holds the last bound.
        problem: The snapshot's.
        optimizer: Solves the LP.
        configuration: What was chosen.

    Returns:
        The memory with the bound, and the figures.
    """
    counts = problem.counts(configuration.places)
    available = supply(problem, {})
    learned = digest(problem.snapshot.throughput)
    text = repr((problem.classes, counts.tolist(), available, problem.offerings, learned))
    key = hashlib.sha256(text.encode()).hexdigest()[:16]
    figures: dict[str, int | float | str] = {
        "cost_usd_per_hour": (
            price(problem, configuration) * MILLION + lost(problem, configuration)
        )
        / _UNIT
    }
    if key != memory.bounded:
        bound = optimizer.bound(counts, available)
        if bound is None:
            return replace(memory, bounded="", bound=0), figures
        memory = replace(memory, bounded=key, bound=bound)
    figures["lower_bound_usd_per_hour"] = memory.bound / _UNIT
    figures["lp_iterations"] = optimizer.effort.iterations
    figures["lp_nodes"] = optimizer.effort.nodes
    figures["lp_columns"] = optimizer.effort.columns
    return memory, figures
