"""The rounds of the policy Synergy."""

from __future__ import annotations

from collections.abc import Sequence

from eva_master.model.fleet.job_keys import reads_none
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.bins.placement_groups import PlacementGroup, place, waiting
from eva_master.packing.bins.plan_builder import build_plan
from eva_master.packing.bins.task_set_value import Tnrp
from eva_master.packing.planner_cache import PlannerCache
from eva_master.packing.profiling import unprofiled
from eva_master.ports import Planned, PolicyKind
from eva_policies.synergy.best_fit import BestFit
from eva_policies.synergy.config import Config
from eva_policies.synergy.valued_instances import ValuedInstances
from eva_wire.values.ids import RunId

NAME = "synergy"


class Synergy:
    """Best fit for a cluster of any size; no task is ever moved.

    A waiting task joins the instance that is then worth most for its price, interference counted.
    If none is worth its price it gets the cheapest instance that holds it.
    """

    name = NAME

    def __init__(self, config: Config) -> None:
        self._config = config
        self._cache = PlannerCache()

    def plan(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Planned:
        """Give every waiting task a place."""
        groups = waiting(snapshot)
        if not (groups or self._config.explained):
            return Plan(), memory
        model = self._cache.exact_throughput(
            snapshot.throughput, self._config.default_throughput_ppm
        )
        alone = unprofiled(snapshot, self._cache.measured_rates(snapshot.standalone))
        instances = ValuedInstances(snapshot, self._cache.snapshot_shapes(snapshot), alone)
        value = Tnrp(instances, model)
        best_fit = BestFit(instances, value)

        def placing(groups: Sequence[PlacementGroup]) -> None:
            for group in groups:
                for run in group.runs:
                    _put(instances, best_fit, run.id, alone=run.id in alone)

        unplaced = place(instances, groups, placing)
        occupants = value.occupants if self._config.explained else None
        return build_plan(snapshot, instances, unplaced, occupants, profiled=alone), memory


def _put(instances: ValuedInstances, best_fit: BestFit, run: RunId, *, alone: bool) -> None:
    """Find a task run a place, if there is any."""
    row = None if alone else best_fit.of(run)
    if row is None:
        offering = instances.cheapest(instances.priced(run))
        if offering is None:
            return
        row = instances.open(offering)
    instances.put(run, row)


POLICY = PolicyKind(
    name=NAME,
    config=Config,
    build=Synergy,
    reads=reads_none,
)
