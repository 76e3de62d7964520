"""The rounds of Stratus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from eva_master.model.ids import RunId
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.bins.placement_groups import Unit, place, waiting
from eva_master.packing.bins.plan_builder import outcome, undisturbed
from eva_master.packing.bins.replan_trigger import occasion
from eva_master.packing.planner_cache import PlannerCache
from eva_master.policies.stratus.bins import Bins
from eva_master.policies.stratus.clearing import clear
from eva_master.policies.stratus.config import Config
from eva_master.policies.stratus.packer import pack

NAME = "stratus"


class Stratus:
    """Puts tasks together that will end together, so that instances are full until they go.

    It goes by how long each job will still run and knows nothing of interference. A running task
    is moved only to clear an instance that is hardly used.
    """

    name = NAME

    def __init__(self, config: Config) -> None:
        self._config = config
        self._cache = PlannerCache()

    def plan(
        self, snapshot: Snapshot, memory: PolicyMemory | None
    ) -> tuple[Plan, PolicyMemory | None]:
        """Pack what waits, scale out, scale in."""
        due, after = occasion(NAME, snapshot, memory)
        units = waiting(snapshot)
        if not (units or due or self._config.explained):
            return Plan(), after
        shapes = self._cache.snapshot_shapes(snapshot)
        bins = Bins(snapshot, shapes, self._left(snapshot))

        def placing(units: Sequence[Unit]) -> None:
            pack(bins, [run.id for unit in units for run in unit.runs])

        stuck = place(bins, units, placing)
        shifts = clear(bins, self._config.clear_below_percent) if due else []
        if shifts and stuck:
            # What was cleared may do for those that found nothing.
            stuck = place(bins, [one.unit for one in stuck], placing)
        tenants = undisturbed if self._config.explained else None
        return outcome(snapshot, bins, stuck, tenants, shifts), after

    def _left(self, snapshot: Snapshot) -> dict[RunId, int]:
        """How long each task run will still run, in milliseconds."""
        assumed = self._config.assumed_duration_s * 1000
        left: dict[RunId, int] = {}
        for job in snapshot.jobs:
            known = job.left_ms(snapshot.now_ms)
            left.update(dict.fromkeys(job.runs, assumed if known is None else known))
        return left


@dataclass(frozen=True, slots=True)
class _Kind:
    name: str = NAME
    config: type[Any] = Config

    def build(self, config: Any) -> Stratus:
        """Make the policy of a `Config`."""
        assert isinstance(config, Config)
        return Stratus(config)


POLICY = _Kind()
