"""Seats contenders anew, on the types that they were given, so that few move on their own type."""

from __future__ import annotations

from collections.abc import Sequence

from eva_master.packing.bins.open_instances import OpenInstances
from eva_master.packing.fleet.contenders import Contender
from eva_master.packing.fleet.seating import Seats
from eva_wire.values.ids import Family


def settle(
    seats: Seats, instances: OpenInstances, mark: int, contenders: Sequence[Contender]
) -> None:
    """Return contenders that stay on their types to exactly their former places.

    A contender seated earlier may have been given such a place though others would have done.

    Args:
        seats: The seats given so far.
        instances: The instances of these seats.
        mark: Mark of the instances before any contender was seated.
        contenders: Contenders that may be seated anew, in the order of their seating.
    """
    chosen = [
        (contender, types) for contender in contenders if (types := _types(contender, instances))
    ]
    stay = [choice for choice in chosen if seats.types_of(choice[0]) == set(choice[1])]
    others = [choice for choice in chosen if seats.types_of(choice[0]) != set(choice[1])]
    instances.back(mark)
    if not all(_again(seats, contender, types) for contender, types in (*stay, *others)):
        # If fragmentation leaves some contender without room, the first seating is restored.
        instances.back(mark)
        for contender, types in chosen:
            _again(seats, contender, types)


def _again(seats: Seats, one: Contender, types: Sequence[Family]) -> bool:
    """Seat a contender on the types that it was given; tasks that differ each on their own."""
    return seats.each(one, types) if one.apart else seats.on(one, tuple(dict.fromkeys(types)))


def _types(one: Contender, instances: OpenInstances) -> tuple[Family, ...]:
    """The type on which each task run of a contender is seated; none if not all are."""
    rows = [instances.row_of[run.id] for run in one.runs if run.id in instances.row_of]
    if len(rows) < len(one.runs):
        return ()
    return tuple(instances.offerings[row].type.family for row in rows)
