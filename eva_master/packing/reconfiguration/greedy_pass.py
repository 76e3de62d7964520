"""The greedy pass alone, in place of a policy that found no plan in time."""

from __future__ import annotations

from collections.abc import Mapping

from eva_master.model.planning.plan import PolicyMemory
from eva_master.model.planning.reasons import Reasons
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.configuration.build import configure, waiting
from eva_master.packing.planner_cache import PlannerCache
from eva_master.packing.problem import Problem, Valuation
from eva_master.packing.reconfiguration.options import plan_of
from eva_master.packing.reconfiguration.reasons import hostings
from eva_master.ports import Planned

_GREEDY = "greedy"


class GreedyPass:
    """Places tasks that wait by Algorithm 1 alone: where there is room, else on new instances.

    Nothing that runs is moved. A policy that makes the next plan finds its memory as it was.
    """

    name = _GREEDY

    def plan(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Planned:
        """Decide on one round's plan."""
        problem = Problem(snapshot, Valuation(), PlannerCache())
        chosen = configure(problem, waiting(problem))
        return plan_of(problem, chosen, {_GREEDY: 1}, Reasons(hostings(problem, chosen))), memory


def planned_greedily(figures: Mapping[str, int | float | str]) -> bool:
    """Whether the figures of a round say that its plan is that of the greedy pass alone."""
    return bool(figures.get(_GREEDY))
