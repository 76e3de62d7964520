"""Makes a plan, and its reasons, of open instances that have been filled."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from eva_master.model.ids import MILLION, InstanceId, RunId, micro_usd
from eva_master.model.planning.plan import Plan, PlanEntry
from eva_master.model.planning.reasons import Exchange, Hosting, Move, Occupant, Reasons, Where
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.bins.open_instances import OpenInstances
from eva_master.packing.bins.placement_groups import UnplacedGroup, holds
from eva_master.packing.valuation.migration_cost import expected_migration_cost, launch_cost

OccupantsOf = Callable[[OpenInstances, int], tuple[Occupant, ...]]
"""What the task runs on a row are worth, by id."""


@dataclass(frozen=True, slots=True)
class JointMove:
    """Task runs that leave their instances together.

    Attributes:
        runs: Which.
        saved: In micro-dollars per hour.
        costs: Of each task run, in micro-dollars.
        besides: What the rest of their gangs costs meanwhile, and new instances until they can
            run tasks, in micro-dollars.
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
    """What it costs if task runs leave.

    A running task run holds as much as its reservation price idle at both ends while it is
    checkpointed and started, and so does, where it is, everyone of its gang. One that does not
    run yet costs nothing.

    Args:
        instances: Where they are.
        runs: Those that leave.
        saved: In micro-dollars per hour.
        bought: The rows of new instances that this takes.
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
    """Make the plan.

    Args:
        snapshot: The cluster.
        instances: Where everything is to be.
        unplaced: What waits.
        occupants: What task runs are worth; `None` for a plan without reasons.
        joint_moves: Every task run that leaves a live instance is in one of them at least.
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
    told = []
    for row, where in enumerate(names):
        if where is not None and instances.residents[row]:
            offering, each = instances.offerings[row], occupants(instances, row)
            if len(each) == 1 and each[0].run in profiled:
                each = (replace(each[0], profiled=True),)
            worth = sum(one.value_micro_usd_per_hour for one in each)
            told.append(Hosting(where, offering.type.name, offering.price, worth, each))
    return tuple(told)


def _exchanges(
    instances: OpenInstances, names: Sequence[Where | None], joint_moves: Sequence[JointMove]
) -> tuple[Exchange, ...]:
    """Shifts that have a task run in common are one exchange."""
    merged: list[tuple[set[RunId], int, dict[RunId, int], int]] = []
    for one in joint_moves:
        runs, saved, besides = set(one.runs), one.saved, one.besides
        costs = dict(zip(one.runs, one.costs, strict=True))
        for other in [group for group in merged if group[0] & runs]:
            merged.remove(other)
            runs |= other[0]
            saved, besides = saved + other[1], besides + other[3]
            costs |= other[2]
        merged.append((runs, saved, costs, besides))
    told = []
    for _, saved, costs, besides in merged:
        moves = _moves(instances, names, costs)
        if moves:
            told.append(
                Exchange(moves, saved, sum(move.cost_micro_usd for move in moves) + besides)
            )
    return tuple(told)


def _moves(
    instances: OpenInstances, names: Sequence[Where | None], costs: Mapping[RunId, int]
) -> tuple[Move, ...]:
    moves = []
    for run, cost in sorted(costs.items()):
        view, target = instances.runs[run], names[instances.row_of[run]]
        if view.running and target is not None and target != view.instance:
            moves.append(Move(run, InstanceId(str(view.instance)), target, cost))
    return tuple(moves)
