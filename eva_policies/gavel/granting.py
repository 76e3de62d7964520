"""Grants claims: seats whoever is due most, whole and on one type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eva_master.model.resources import NOTHING, Resources
from eva_master.packing.bins.open_instances import OpenInstances
from eva_master.packing.fleet.contenders import Contender
from eva_master.packing.fleet.seating import Seats
from eva_master.packing.fleet.settling import settle
from eva_policies.gavel.rounds import TypedClaim
from eva_wire.values.ids import Family, RunId


def take_turns(
    seats: Seats,
    instances: OpenInstances,
    types: Sequence[Family],
    contenders: Sequence[Contender],
    order: Sequence[TypedClaim],
) -> None:
    """Seat the contenders that this round decides on, in their order.

    Args:
        seats: The fleet without these contenders.
        instances: Its instances.
        types: Types of the fleet.
        contenders: All contenders for the fleet.
        order: Their claims.
    """
    mark, chosen = instances.mark(), []
    leased, waits, closed = _leased(contenders, instances), set[RunId](), set[Family]()
    for claim in order:
        contender, family = claim.one, claim.family
        if (
            not contender.chooses
            or seats.has(contender)
            or not _begun(contender, instances) <= {family}
        ):
            continue
        if family not in closed and seats.on(contender, (family,)):
            chosen.append(contender)
        elif contender.id not in waits:
            waits.add(contender.id)
            room = seats.room(family) + leased.get(family, NOTHING)
            # If leases alone are in its way, no other contender begins a lease there before it.
            if claim.due and contender.demand[family].fits(room):
                closed.add(family)
    movable = [contender for contender in contenders if contender.chooses]
    # A contender that would only leave idle room stays.
    chosen += [
        contender for contender in movable if not seats.has(contender) and seats.back(contender)
    ]
    # Contenders that no single type holds get the room that the others leave on several.
    mixed = [contender for contender in movable if contender.fixed or not contender.types]
    chosen += [
        contender for contender in mixed if not seats.has(contender) and seats.on(contender, types)
    ]
    settle(seats, instances, mark, chosen)


def _leased(contenders: Iterable[Contender], instances: OpenInstances) -> dict[Family, Resources]:
    """Room of each type taken by contenders whose leases are not over."""
    taken_on: dict[Family, Resources] = {}
    for contender in contenders:
        if contender.fixed and contender.seated:
            for family in _begun(contender, instances):
                taken = taken_on.get(family, NOTHING)
                taken_on[family] = taken + contender.demand.get(family, NOTHING)
    return taken_on


def _begun(one: Contender, instances: OpenInstances) -> set[Family]:
    """Types on which part of a contender is seated."""
    rows = instances.row_of
    return {instances.offerings[rows[run.id]].type.family for run in one.runs if run.id in rows}


def move_to_faster_type(
    seats: Seats, instances: OpenInstances, order: Sequence[TypedClaim]
) -> None:
    """Move contenders to types with room if they end sooner by it."""
    moved = True
    while moved:
        moved = False
        for claim in order:
            contender = claim.one
            if contender.fixed or not seats.has(contender):
                continue
            now_ms = max(
                contender.alone_ms.get(family, 0.0) for family in _begun(contender, instances)
            )
            if contender.alone_ms[claim.family] + contender.move_ms < now_ms:
                mark = instances.mark()
                for run in contender.runs:
                    instances.take(run.id)
                if seats.on(contender, (claim.family,)):
                    moved = True
                else:
                    instances.back(mark)
