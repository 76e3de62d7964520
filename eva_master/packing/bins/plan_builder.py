"""Makes a plan, and its reasons, of open instances that have been filled."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from eva_master.model.planning.plan import Plan, PlanEntry
from eva_master.model.planning.reasons import Exchange, Hosting, Move, Occupant, Reasons, Where
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.bins.open_instances import OpenInstances
from eva_master.packing.bins.placement_groups import UnplacedGroup, holds
from eva_master.packing.valuation.migration_cost import expected_migration_cost, launch_cost
from eva_wire.values.ids import MILLION, InstanceId, RunId, micro_usd

OccupantsOf = Callable[[OpenInstances, int], tuple[Occupant, ...]]
"""Function that gives the worth of each task run on a row, by id."""


@dataclass(frozen=True, slots=True)
class JointMove:
    """Task runs that leave their instances together.

    Attributes:
        runs: The task runs.
        saved: Saving in micro-dollars per hour.
        costs: Cost of each task run's move, in micro-dollars.
        besides: Cost of the rest of their gangs meanwhile, and of new instances until these can run
            tasks, in micro-dollars.
    """

    runs: tuple[RunId, ...]
    saved: int
    costs: tuple[int, ...]
    besides: int = 0

    @property
    def cost(self) -> int:
        """All of it, in micro-dollars."""
        return sum(self.costs) + self.besides


def joint_move(
    instances: OpenInstances, runs: Sequence[RunId], saved: int, bought: Iterable[int]
) -> JointMove:
    """The cost of moving task runs together, against the saving.

    A running task run leaves as much as its reservation price idle at both ends while it is
    checkpointed and started, and so do the other members of its gang where they are. A task run
    that does not run yet costs nothing.

    Args:
        instances: The instances with their places.
        runs: The task runs that move.
        saved: Saving in micro-dollars per hour.
        bought: The rows of new instances that the move needs.
    """
    leaving = set(runs)
    mates: dict[RunId, None] = {}
    for run in runs:
        if instances.runs[run].running:
            mates.update(dict.fromkeys(instances.gang_of(run)))
    besides = sum(_idle(instances, mate) for mate in mates if mate not in leaving)
    for row in bought:
        besides += micro_usd(launch_cost(instances.offerings[row]))
    return JointMove(tuple(runs), saved, tuple(_idle(instances, run) for run in runs), besides)


def _idle(instances: OpenInstances, run: RunId) -> int:
    view = instances.runs[run]
    if not view.running:
        return 0
    return micro_usd(expected_migration_cost(instances.jobs[view.job], instances.priced(run).price))


def without_interference(instances: OpenInstances, row: int) -> tuple[Occupant, ...]:
    """`OccupantsOf` as a policy sees them that expects no interference."""
    family = instances.family(row)
    worth = (
        (run, instances.priced(run).prices[family]) for run in sorted(instances.residents[row])
    )
    return tuple(Occupant(run, each, MILLION, each) for run, each in worth)


def build_plan(
    snapshot: Snapshot,
    instances: OpenInstances,
    unplaced: Sequence[UnplacedGroup],
    occupants: OccupantsOf | None,
    joint_moves: Sequence[JointMove] = (),
    *,
    profiled: Collection[RunId] = (),
) -> Plan:
    """Make the plan from the rows as they are now.

    Args:
        snapshot: The cluster.
        instances: The rows with the places to plan.
        unplaced: The groups that wait.
        occupants: Function that gives the worth of task runs; `None` for a plan without reasons.
        joint_moves: Moves of which at least one contains each task run that leaves a live instance.
        profiled: Task runs that are kept alone, see `profiling.unprofiled`.
    """
    launches, places, names = instances.placements()
    entries: list[PlanEntry] = [*places, *holds(snapshot, unplaced)]
    entries.sort(key=lambda entry: entry.run)
    if occupants is None:
        return Plan(launches, tuple(entries))
    moved = _exchanges(instances, names, joint_moves)
    prices = (
        instances.offerings[row].price for row in range(len(instances)) if instances.residents[row]
    )
    figures: dict[str, int | float | str] = {
        "moves": sum(len(exchange.moves) for exchange in moved),
        "price_after_usd_per_hour": sum(prices) / MILLION,
    }
    hostings = _hostings(instances, names, occupants, profiled)
    return Plan(launches, tuple(entries), figures, Reasons(hostings, moved))


def _hostings(
    instances: OpenInstances,
    names: Sequence[Where | None],
    occupants: OccupantsOf,
    profiled: Collection[RunId],
) -> tuple[Hosting, ...]:
    hostings = []
    for row, where in enumerate(names):
        if where is not None and instances.residents[row]:
            offering, each = instances.offerings[row], occupants(instances, row)
            if len(each) == 1 and each[0].run in profiled:
                each = (replace(each[0], profiled=True),)
            worth = sum(occupant.value_micro_usd_per_hour for occupant in each)
            hostings.append(Hosting(where, offering.type.name, offering.price, worth, each))
    return tuple(hostings)


def _exchanges(
    instances: OpenInstances, names: Sequence[Where | None], joint_moves: Sequence[JointMove]
) -> tuple[Exchange, ...]:
    """Joint moves that share a task run are merged into one exchange."""
    merged: list[tuple[set[RunId], int, dict[RunId, int], int]] = []
    for joint in joint_moves:
        runs, saved, besides = set(joint.runs), joint.saved, joint.besides
        costs = dict(zip(joint.runs, joint.costs, strict=True))
        for other in [group for group in merged if group[0] & runs]:
            merged.remove(other)
            runs |= other[0]
            saved, besides = saved + other[1], besides + other[3]
            costs |= other[2]
        merged.append((runs, saved, costs, besides))
    exchanges = []
    for _, saved, costs, besides in merged:
        moves = _moves(instances, names, costs)
        if moves:
            exchanges.append(
                Exchange(moves, saved, sum(move.cost_micro_usd for move in moves) + besides)
            )
    return tuple(exchanges)


def _moves(
    instances: OpenInstances, names: Sequence[Where | None], costs: Mapping[RunId, int]
) -> tuple[Move, ...]:
    moves = []
    for run, cost in sorted(costs.items()):
        view, target = instances.runs[run], names[instances.row_of[run]]
        if view.running and target is not None and target != view.instance:
            moves.append(Move(run, InstanceId(str(view.instance)), target, cost))
    return tuple(moves)
