"""Grants claims: seats whoever is due most, whole and on one type."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from eva_master.model.ids import Family, RunId
from eva_master.model.resources import NOTHING, Resources
from eva_master.packing.bins.open_instances import OpenInstances
from eva_master.packing.fleet.contenders import Contender
from eva_master.packing.fleet.seating import Seats
from eva_master.packing.fleet.settling import settle
from eva_master.policies.gavel.rounds import Claim


def take_turns(
    seats: Seats,
    instances: OpenInstances,
    types: Sequence[Family],
    contenders: Sequence[Contender],
    order: Sequence[Claim],
) -> None:
    """Seat those of whom this round decides, in their order.

    Args:
        seats: The fleet, without them.
        instances: Of the same.
        types: Of the fleet.
        contenders: Who competes.
        order: Their claims.
    """
    mark, chosen = instances.mark(), []
    leased, waits, closed = _leased(contenders, instances), set[RunId](), set[Family]()
    for claim in order:
        one, family = claim.one, claim.family
        if not one.chooses or seats.has(one) or not _begun(one, instances) <= {family}:
            continue
        if family not in closed and seats.on(one, (family,)):
            chosen.append(one)
        elif one.id not in waits:
            waits.add(one.id)
            room = seats.room(family) + leased.get(family, NOTHING)
            # If leases alone are in its way, nobody begins another one there before it.
            if claim.due and one.demand[family].fits(room):
                closed.add(family)
    left = [one for one in contenders if one.chooses]
    # Whoever would only leave idle room stays.
    chosen += [one for one in left if not seats.has(one) and seats.back(one)]
    # What no type holds by itself has what the others leave of several.
    mixed = [one for one in left if one.fixed or not one.types]
    chosen += [one for one in mixed if not seats.has(one) and seats.on(one, types)]
    settle(seats, instances, mark, chosen)


def _leased(contenders: Iterable[Contender], instances: OpenInstances) -> dict[Family, Resources]:
    """What is taken of each type by those whose leases are not over."""
    found: dict[Family, Resources] = {}
    for one in contenders:
        if one.fixed and one.seated:
            for family in _begun(one, instances):
                taken = found.get(family, NOTHING)
                found[family] = taken + one.demand.get(family, NOTHING)
    return found


def _begun(one: Contender, instances: OpenInstances) -> set[Family]:
    """The types on which some of a contender is seated."""
    rows = instances.row_of
    return {instances.offerings[rows[it.id]].type.family for it in one.runs if it.id in rows}


def hasten(seats: Seats, instances: OpenInstances, order: Sequence[Claim]) -> None:
    """Move those to types with room that are done sooner by it."""
    moved = True
    while moved:
        moved = False
        for claim in order:
            one = claim.one
            if one.fixed or not seats.has(one):
                continue
            now_ms = max(one.alone_ms.get(it, 0.0) for it in _begun(one, instances))
            if one.alone_ms[claim.family] + one.move_ms < now_ms:
                mark = instances.mark()
                for run in one.runs:
                    instances.take(run.id)
                if seats.on(one, (claim.family,)):
                    moved = True
                else:
                    instances.back(mark)
