"""Makes a plan of who has a seat in a fleet: who is placed, who moves, who gives up the place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eva_master.model.ids import Millis, RunId
from eva_master.model.planning.plan import Hold, Plan, PlanEntry, Suspend
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.values import replace
from eva_master.packing.bins.open_instances import OpenInstances
from eva_master.packing.bins.placement_groups import PlacementGroup, place, waiting
from eva_master.packing.bins.plan_builder import (
    JointMove,
    build_plan,
    joint_move,
    without_interference,
)
from eva_master.packing.fleet.contenders import Contender


def turn_plan(
    snapshot: Snapshot,
    instances: OpenInstances,
    contenders: Sequence[Contender],
    why: Mapping[RunId, str],
    *,
    explained: bool,
    lease_s: int | None = None,
) -> Plan:
    """Make the plan of a round.

    Who competes for the fleet and has no place now waits; who had one is suspended. For all others
    that wait the cheapest instances are launched, if there is no limit to them.

    Args:
        snapshot: The cluster.
        instances: Where everybody is to be.
        contenders: Who competes for the fleet.
        why: Why contenders have no place, by their ids, as their users are told it.
        explained: Whether reasons are given that decide nothing.
        lease_s: For how long a place is kept, if somebody has turns: while contenders wait there is
            another plan so soon at least.
    """
    competing = {run.id for one in contenders for run in one.runs}
    others = [it for it in waiting(snapshot) if not competing.intersection(r.id for r in it.runs)]
    left = place(instances, others, lambda groups: _launch(instances, groups))
    entries: list[PlanEntry] = []
    for one in contenders:
        entries.extend(_given_up(one, instances, why))
    again = None
    if entries and lease_s is not None:
        again = Millis(snapshot.now_ms + 1000 * lease_s)
    occupants = without_interference if explained else None
    moves = _moves(snapshot, instances, contenders) if explained else []
    plan = build_plan(snapshot, instances, left, occupants, moves)
    entries.extend(plan.entries)
    found = tuple(sorted(entries, key=lambda it: it.run))
    return replace(plan, entries=found, again_ms=again)


def unplaced(contenders: Sequence[Contender], instances: OpenInstances) -> list[Contender]:
    """Those that have no seat, or not all of theirs."""
    return [it for it in contenders if any(run.id not in instances.row_of for run in it.runs)]


def _given_up(
    one: Contender, instances: OpenInstances, why: Mapping[RunId, str]
) -> list[PlanEntry]:
    reason = why.get(one.id, "others come first")
    found: list[PlanEntry] = []
    for run in one.runs:
        if run.pinned or run.id in instances.row_of:
            continue
        if one.seated:
            found.append(Suspend(run.id, reason))
        elif run.instance is None:
            found.append(Hold(run.id, reason))
    return found


def _moves(
    snapshot: Snapshot, instances: OpenInstances, contenders: Sequence[Contender]
) -> list[JointMove]:
    """Contenders that leave instances for others, each with all of its task runs that move."""
    rows = {view.id: row for row, view in enumerate(snapshot.instances)}
    found = []
    for one in contenders:
        moved = [
            run.id
            for run in one.runs
            if run.running
            and run.instance in rows
            and instances.row_of.get(run.id, rows[run.instance]) != rows[run.instance]
        ]
        if moved:
            found.append(joint_move(instances, moved, 0, ()))
    return found


def _launch(instances: OpenInstances, groups: Sequence[PlacementGroup]) -> None:
    """Give task runs that cannot run in the fleet the cheapest instances, each one of its own."""
    for group in groups:
        for run in group.runs:
            offering = instances.cheapest(instances.priced(run.id))
            if offering is not None:
                instances.put(run.id, instances.open(offering))
