"""Seats contenders anew, on the types that they were given, so that few move on their own type."""

from __future__ import annotations

from collections.abc import Sequence

from eva_master.model.ids import Family
from eva_master.packing.bins.open_instances import OpenInstances
from eva_master.packing.fleet.contenders import Contender
from eva_master.packing.fleet.seating import Seats


def settle(
    seats: Seats, instances: OpenInstances, mark: int, contenders: Sequence[Contender]
) -> None:
    """Let those that stay on their types have the very places that they had.

    Whoever was seated before them may have been given these though others would have done.

    Args:
        seats: Where contenders have been seated.
        instances: Of the same.
        mark: Of the instances before any was.
        contenders: Those that may be seated anew, in the order in which they were seated.
    """
    chosen = [(one, types) for one in contenders if (types := _types(one, instances))]
    stay = [it for it in chosen if seats.types_of(it[0]) == set(it[1])]
    others = [it for it in chosen if seats.types_of(it[0]) != set(it[1])]
    instances.back(mark)
    if not all(_again(seats, one, types) for one, types in (*stay, *others)):
        # Where room is broken up so that not all find some again, the first way was one.
        instances.back(mark)
        for one, types in chosen:
            _again(seats, one, types)


def _again(seats: Seats, one: Contender, types: Sequence[Family]) -> bool:
    """Seat a contender on the types that it was given; tasks that differ each on their own."""
    return seats.each(one, types) if one.apart else seats.on(one, tuple(dict.fromkeys(types)))


def _types(one: Contender, instances: OpenInstances) -> tuple[Family, ...]:
    """The type on which each task run of a contender is seated; none if not all are."""
    rows = [instances.row_of[run.id] for run in one.runs if run.id in instances.row_of]
    if len(rows) < len(one.runs):
        return ()
    return tuple(instances.offerings[row].type.family for row in rows)
