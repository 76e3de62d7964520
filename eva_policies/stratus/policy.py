"""The rounds of the policy Stratus."""

from __future__ import annotations

from collections.abc import Sequence

from eva_master.model.fleet.job_keys import reads_none
from eva_master.model.planning.estimate import Estimate
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.bins.placement_groups import PlacementGroup, place, waiting
from eva_master.packing.bins.plan_builder import build_plan, without_interference
from eva_master.packing.bins.replan_trigger import replan_due
from eva_master.packing.planner_cache import PlannerCache
from eva_master.packing.valuation.time_left import with_current_estimates
from eva_master.ports import Planned, PolicyKind
from eva_policies.stratus.bins import Bins
from eva_policies.stratus.clearing import clear
from eva_policies.stratus.config import Config
from eva_policies.stratus.packer import pack
from eva_wire.values.ids import MILLION, RunId

NAME = "stratus"


class Stratus:
    """Puts tasks together that will end together, so that instances are full until they go.

    Only remaining times count; interference is ignored. A running task is moved only to clear an
    instance that is hardly used.
    """

    name = NAME

    def __init__(self, config: Config) -> None:
        self._config = config
        self._cache = PlannerCache()

    def plan(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Planned:
        """Pack waiting tasks, scale out, scale in."""
        due, after = replan_due(NAME, snapshot, memory)
        groups = waiting(snapshot)
        if not (groups or due or self._config.explained):
            return Plan(), after
        shapes = self._cache.snapshot_shapes(snapshot)
        bins = Bins(snapshot, shapes, self._left(snapshot))

        def placing(groups: Sequence[PlacementGroup]) -> None:
            pack(bins, [run.id for group in groups for run in group.runs])

        unplaced = place(bins, groups, placing)
        joint_moves = clear(bins, self._config.clear_below_percent) if due else []
        if joint_moves and unplaced:
            # Cleared instances may do for groups that found nothing.
            unplaced = place(bins, [group_left.group for group_left in unplaced], placing)
        occupants = without_interference if self._config.explained else None
        return build_plan(snapshot, bins, unplaced, occupants, joint_moves), after

    def _left(self, snapshot: Snapshot) -> dict[RunId, int]:
        """Remaining time of each task run, in milliseconds."""
        snapshot, assumed = with_current_estimates(snapshot), self._config.assumed_duration_s * 1000
        counts = {job.id for job in snapshot.jobs if self._counts(job.progress.estimate)}
        rest_ms: dict[RunId, int] = {}
        for run in snapshot.runs:
            work = run.remaining
            if work is None or (work.estimated and run.job not in counts):
                rest_ms[run.id] = assumed
            else:
                rest_ms[run.id] = work.standalone_ms(snapshot.now_ms)
        return rest_ms

    def _counts(self, estimate: Estimate | None) -> bool:
        """Whether an estimate is worth more than the assumption that is the same for all jobs."""
        config = self._config
        if estimate is None:
            return False
        if estimate.spread_ppm < config.sure_ppm:
            return True
        longer = estimate.exceeds_ppm(config.assumed_duration_s * 1000)
        return min(longer, MILLION - longer) < config.unlikely_ppm


POLICY = PolicyKind(
    name=NAME,
    config=Config,
    build=Stratus,
    reads=reads_none,
)
