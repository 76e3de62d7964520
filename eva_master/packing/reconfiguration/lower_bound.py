"""The lower bound of a round: what no scheduler can pay less than for the same tasks."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import partial

from eva_master.packing.configuration.build import supply
from eva_master.packing.lp.optimizer import Optimizer
from eva_master.packing.problem import Problem
from eva_master.packing.reconfiguration.column_memory import KEPT, Duals, NamedColumns
from eva_master.packing.reconfiguration.memory import ReconfigurationMemory
from eva_master.packing.reconfiguration.options import Option
from eva_wire.values.ids import MILLION

_UNIT = MILLION * MILLION


def bounded(
    memory: ReconfigurationMemory, problem: Problem, optimizer: Optimizer, chosen: Option
) -> tuple[ReconfigurationMemory, dict[str, int | float | str]]:
    """Compare a configuration with the lower bound, for the round's figures.

    The bound is for the tasks that have a place, as if none of them ran anywhere yet. A new proof
    is made when tasks, prices or the co-location table have changed, and the bound is improved as
    long as further effort improves it.

    Args:
        memory: The memory, with the last bound.
        problem: The packing problem of the snapshot.
        optimizer: Solver of the LP.
        chosen: The chosen configuration.

    Returns:
        The memory with the bound, and the figures.
    """
    counts = problem.counts(chosen.configuration.places)
    available = supply(problem, {})
    key = _key(problem, repr((counts.tolist(), available)))
    figures: dict[str, int | float | str] = {
        "cost_usd_per_hour": (chosen.sums.price * MILLION + chosen.sums.lost) / _UNIT
    }
    if key != memory.bounded or not memory.settled:
        packed = set(optimizer.seeds(KEPT))
        optimizer.recall(memory.proof.seeds(problem), memory.duals.known(problem))
        bound = optimizer.bound(counts, available)
        if bound is None:
            return replace(memory, bounded="", bound=0, settled=False), figures
        settled = optimizer.tight(counts, available)
        if key == memory.bounded and bound <= memory.bound:
            bound, settled = memory.bound, True
        duals = Duals.of(problem, optimizer.duals)
        memory = replace(memory, bounded=key, bound=bound, settled=settled, duals=duals)
        proof = [seed for seed in optimizer.seeds(KEPT) if seed not in packed]
        memory = replace(memory, proof=NamedColumns.of(problem, proof))
    figures["lower_bound_usd_per_hour"] = memory.bound / _UNIT
    figures["lp_iterations"] = optimizer.effort.iterations
    figures["lp_nodes"] = optimizer.effort.nodes
    figures["lp_columns"] = optimizer.effort.columns
    return memory, figures


def _key(problem: Problem, amounts: str) -> str:
    """Tell apart what a bound is for."""
    cache = problem.cache
    parts = [cache.remembered("texts", part, partial(repr, part)) for part in problem.classes]
    for offering in problem.offerings:
        parts.append(cache.remembered("texts", offering, partial(repr, offering)))
    parts.append(amounts)
    parts.append(cache.digest(problem.snapshot.throughput))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
