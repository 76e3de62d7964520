"""Rooms that have been filled, turned into a plan and its reasons."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from eva_master.model.ids import MILLION, InstanceId, RunId, micro_usd
from eva_master.model.planning.plan import Plan, PlanEntry
from eva_master.model.planning.reasons import Exchange, Hosting, Move, Reasons, Tenant, Where
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.bins.open_instances import Rooms
from eva_master.packing.bins.placement_groups import Stuck, holds
from eva_master.packing.valuation.migration_cost import expected_migration_cost, launch_cost

Tenants = Callable[[Rooms, int], tuple[Tenant, ...]]
"""What the task runs on a row are worth, by id."""


@dataclass(frozen=True, slots=True)
class Shift:
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


def shift(rooms: Rooms, runs: Sequence[RunId], saved: int, bought: Iterable[int]) -> Shift:
    """What it costs if task runs leave.

    A running task run holds as much as its reservation price idle at both ends while it is
    checkpointed and started, and so does, where it is, everyone of its gang. One that does not
    run yet costs nothing.

    Args:
        rooms: Where they are.
        runs: Those that leave.
        saved: In micro-dollars per hour.
        bought: The rows of new instances that this takes.
    """
    leaving = set(runs)
    mates: dict[RunId, None] = {}
    for run in runs:
        if rooms.runs[run].running:
            mates.update(dict.fromkeys(rooms.gang_of(run)))
    besides = sum(_idle(rooms, mate) for mate in mates if mate not in leaving)
    for row in bought:
        besides += micro_usd(launch_cost(rooms.offerings[row]))
    return Shift(tuple(runs), saved, tuple(_idle(rooms, run) for run in runs), besides)


def _idle(rooms: Rooms, run: RunId) -> int:
    view = rooms.runs[run]
    if not view.running:
        return 0
    return micro_usd(expected_migration_cost(rooms.jobs[view.job], rooms.priced(run).price))


def undisturbed(rooms: Rooms, row: int) -> tuple[Tenant, ...]:
    """`Tenants` as a policy sees them that expects no interference."""
    family = rooms.family(row)
    worth = ((run, rooms.priced(run).worth[family]) for run in sorted(rooms.residents[row]))
    return tuple(Tenant(run, each, MILLION, each) for run, each in worth)


def outcome(
    snapshot: Snapshot,
    rooms: Rooms,
    stuck: Sequence[Stuck],
    tenants: Tenants | None,
    shifts: Sequence[Shift] = (),
    *,
    profiled: Collection[RunId] = (),
) -> Plan:
    """Make the plan.

    Args:
        snapshot: The cluster.
        rooms: Where everything is to be.
        stuck: What waits.
        tenants: What task runs are worth; `None` for a plan without reasons.
        shifts: Every task run that leaves a live instance is in one of them at least.
        profiled: Task runs that are kept alone, see `problem.unprofiled`.
    """
    launches, places, names = rooms.placements()
    entries: list[PlanEntry] = [*places, *holds(snapshot, stuck)]
    entries.sort(key=lambda entry: entry.run)
    if tenants is None:
        return Plan(launches, tuple(entries))
    moved = _exchanges(rooms, names, shifts)
    prices = (rooms.offerings[row].price for row in range(len(rooms)) if rooms.residents[row])
    figures: dict[str, int | float | str] = {
        "moves": sum(len(exchange.moves) for exchange in moved),
        "price_after_usd_per_hour": sum(prices) / MILLION,
    }
    hostings = _hostings(rooms, names, tenants, profiled)
    return Plan(launches, tuple(entries), figures, Reasons(hostings, moved))


def _hostings(
    rooms: Rooms,
    names: Sequence[Where | None],
    tenants: Tenants,
    profiled: Collection[RunId],
) -> tuple[Hosting, ...]:
    told = []
    for row, where in enumerate(names):
        if where is not None and rooms.residents[row]:
            offering, each = rooms.offerings[row], tenants(rooms, row)
            if len(each) == 1 and each[0].run in profiled:
                each = (replace(each[0], profiled=True),)
            worth = sum(one.value_micro_usd_per_hour for one in each)
            told.append(Hosting(where, offering.type.name, offering.price, worth, each))
    return tuple(told)


def _exchanges(
    rooms: Rooms, names: Sequence[Where | None], shifts: Sequence[Shift]
) -> tuple[Exchange, ...]:
    """Shifts that have a task run in common are one exchange."""
    merged: list[tuple[set[RunId], int, dict[RunId, int], int]] = []
    for one in shifts:
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
        moves = _moves(rooms, names, costs)
        if moves:
            told.append(
                Exchange(moves, saved, sum(move.cost_micro_usd for move in moves) + besides)
            )
    return tuple(told)


def _moves(
    rooms: Rooms, names: Sequence[Where | None], costs: Mapping[RunId, int]
) -> tuple[Move, ...]:
    moves = []
    for run, cost in sorted(costs.items()):
        view, target = rooms.runs[run], names[rooms.row_of[run]]
        if view.running and target is not None and target != view.instance:
            moves.append(Move(run, InstanceId(str(view.instance)), target, cost))
    return tuple(moves)
