"""Makes a plan of who has a seat in a fleet: who is placed, who moves, who gives up the place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from eva_master.model.planning.plan import Again, Hold, Plan, PlanEntry, Suspend
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
from eva_wire.values.ids import Millis, RunId


def turn_plan(
    snapshot: Snapshot,
    instances: OpenInstances,
    contenders: Sequence[Contender],
    why: Mapping[RunId, str],
    *,
    explained: bool,
    lease_s: int | None = None,
) -> Plan:
    """Make the plan of a round from the seats of a fleet.

    Contenders without a place wait, or are suspended if they had one. For all other waiting task
    runs the cheapest instances are launched, if these have no limit.

    Args:
        snapshot: The cluster.
        instances: The instances with the places to plan.
        contenders: The contenders for the fleet.
        why: Reasons of contenders without a place, by their ids, for their users.
        explained: Whether to give reasons that decide nothing.
        lease_s: How long a place is kept, if contenders take turns: while some wait, the next plan
            comes after this time at the latest.
    """
    competing = {run.id for contender in contenders for run in contender.runs}
    others = [
        group for group in waiting(snapshot) if not competing.intersection(r.id for r in group.runs)
    ]
    unplaced_groups = place(instances, others, lambda groups: _launch(instances, groups))
    entries: list[PlanEntry] = []
    for contender in contenders:
        entries.extend(_given_up(contender, instances, why))
    again = None
    if entries and lease_s is not None:
        again = Millis(snapshot.now_ms + 1000 * lease_s)
    occupants = without_interference if explained else None
    moves = _moves(snapshot, instances, contenders) if explained else []
    plan = build_plan(snapshot, instances, unplaced_groups, occupants, moves)
    entries.extend(plan.entries)
    every_entry = tuple(sorted(entries, key=lambda it: it.run))
    return replace(plan, entries=every_entry, again=Again(again))


def unplaced(contenders: Sequence[Contender], instances: OpenInstances) -> list[Contender]:
    """Contenders of which at least one task run has no seat."""
    return [
        contender
        for contender in contenders
        if any(run.id not in instances.row_of for run in contender.runs)
    ]


def _given_up(
    one: Contender, instances: OpenInstances, why: Mapping[RunId, str]
) -> list[PlanEntry]:
    reason = why.get(one.id, "others come first")
    entries: list[PlanEntry] = []
    for run in one.runs:
        if run.pinned or run.id in instances.row_of:
            continue
        if one.seated:
            entries.append(Suspend(run.id, reason))
        elif run.instance is None:
            entries.append(Hold(run.id, reason))
    return entries


def _moves(
    snapshot: Snapshot, instances: OpenInstances, contenders: Sequence[Contender]
) -> list[JointMove]:
    """Contenders that leave instances for others, each with all of its task runs that move."""
    rows = {view.id: row for row, view in enumerate(snapshot.instances)}
    moves = []
    for contender in contenders:
        moved = [
            run.id
            for run in contender.runs
            if run.running
            and run.instance in rows
            and instances.row_of.get(run.id, rows[run.instance]) != rows[run.instance]
        ]
        if moved:
            moves.append(joint_move(instances, moved, 0, ()))
    return moves


def _launch(instances: OpenInstances, groups: Sequence[PlacementGroup]) -> None:
    """Give task runs that cannot run in the fleet the cheapest instances, each one of its own."""
    for group in groups:
        for run in group.runs:
            offering = instances.cheapest(instances.priced(run.id))
            if offering is not None:
                instances.put(run.id, instances.open(offering))
