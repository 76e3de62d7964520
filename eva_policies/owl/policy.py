"""The rounds of the policy Owl."""

from __future__ import annotations

from collections import defaultdict

from eva_master.model.fleet.job_keys import reads_none
from eva_master.model.planning.plan import Plan, PolicyMemory
from eva_master.model.planning.snapshot import Snapshot, ThroughputTable
from eva_master.packing.bins.open_instances import OpenInstances
from eva_master.packing.bins.placement_groups import place, waiting
from eva_master.packing.bins.plan_builder import JointMove, build_plan, joint_move
from eva_master.packing.bins.replan_trigger import replan_due
from eva_master.packing.bins.task_set_value import Tnrp
from eva_master.packing.planner_cache import PlannerCache
from eva_master.packing.profiling import unprofiled
from eva_master.packing.valuation.task_classes import ShapePrices
from eva_master.ports import Planned, PolicyKind
from eva_policies.owl.config import Config
from eva_policies.owl.matchmaker import Matchmaker
from eva_policies.owl.pairs import Beside, Pairs, Profile, seen
from eva_wire.values.ids import MILLION, RunId

NAME = "owl"
_CLASSES_PAIRED = 2_048
"""Classes of which all pairs are remembered."""


class Owl:
    """Never more than two tasks on an instance, and only such as leave each other in peace.

    Which these are it knows from a profile. Of the pairs that are worth more than the cheapest
    instance for them, those with the best ratio are made first.
    """

    name = NAME

    def __init__(self, config: Config) -> None:
        self._config = config
        self._cache = PlannerCache()
        self._profile = Profile(config.profile) if config.profile else None
        self._basis: tuple[ShapePrices | None, ThroughputTable | None] = None, None
        self._pairs: Pairs | None = None

    def plan(self, snapshot: Snapshot, memory: PolicyMemory | None) -> Planned:
        """Pair waiting task runs and those that are alone."""
        due, after = replan_due(NAME, snapshot, memory)
        groups = waiting(snapshot)
        if not (groups or due or self._config.explained):
            return Plan(), after
        shapes = self._cache.snapshot_shapes(snapshot)
        beside = self._profile or seen(snapshot.throughput)
        instances = OpenInstances(snapshot, shapes)
        pairs = self._paired(shapes.prices, beside, snapshot.throughput)
        movable = due and self._config.migrate
        alone = unprofiled(snapshot, self._cache.measured_rates(snapshot.standalone))
        maker = Matchmaker(instances, pairs, movable=movable, single=alone)
        unplaced = place(instances, groups, maker.place)
        if due and not groups:
            maker.place(())
        if due and unplaced:
            # Instances left by others may do for groups that found nothing.
            unplaced = place(instances, [group_left.group for group_left in unplaced], maker.place)
        if movable and unplaced:
            # A member paired with a moving task run may leave none for the others of its gang.
            still = Matchmaker(instances, pairs, movable=False, single=alone)
            unplaced = place(instances, [group_left.group for group_left in unplaced], still.place)
        if not self._config.explained:
            return build_plan(snapshot, instances, unplaced, None), after
        value = Tnrp(instances, pairs.throughput)
        joint_moves = _joint_moves(snapshot, instances, value)
        return build_plan(
            snapshot, instances, unplaced, value.occupants, joint_moves, profiled=alone
        ), after

    def _paired(self, prices: ShapePrices, beside: Beside, table: ThroughputTable) -> Pairs:
        """The pairs as far as they are known; they change with prices and with what was seen."""
        basis = prices, table if self._profile is None else None
        same = basis[0] is self._basis[0] and basis[1] is self._basis[1]
        if self._pairs is None or not same or len(self._pairs) > _CLASSES_PAIRED:
            self._basis = basis
            self._pairs = Pairs(prices, beside, self._config.least_throughput_ppm)
        return self._pairs


def _joint_moves(snapshot: Snapshot, instances: OpenInstances, value: Tnrp) -> list[JointMove]:
    """Moves of running task runs by their targets, and the saving over staying."""
    rows = {view.id: row for row, view in enumerate(snapshot.instances)}
    movers: defaultdict[int, list[RunId]] = defaultdict(list)
    for run in snapshot.runs:
        if run.instance in rows and instances.row_of[run.id] != rows[run.instance]:
            movers[instances.row_of[run.id]].append(run.id)
    moves = []
    for row, runs in sorted(movers.items()):
        saved = value.of(instances.residents[row], instances.family(row))
        saved -= instances.offerings[row].price * MILLION
        for occupant in instances.residents[row]:
            instance = instances.runs[occupant].instance
            if instance in rows:
                old = rows[instance]
                worth = instances.priced(occupant).prices[instances.family(old)]
                saved -= (worth - instances.offerings[old].price) * MILLION
        new = [row] if row >= instances.live else []
        moves.append(joint_move(instances, runs, saved // MILLION, new))
    return moves


POLICY = PolicyKind(
    name=NAME,
    config=Config,
    build=Owl,
    reads=reads_none,
)
