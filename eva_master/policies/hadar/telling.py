"""What users are told of a round: when whose turn is expected, and what each type is worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eva_master.model.ids import MILLION, Family, RunId
from eva_master.model.resources import Resources
from eva_master.packing.fleet.seating import Seats
from eva_master.packing.lp.least_time import largest_share
from eva_master.policies.hadar.order import Order, Turn

_MINUTE_MS = 60_000
_WITHIN_MIN = (1, 2, 5, 10, 20, 30, 60, 120, 180, 360, 720, 1440, 2880, 5760, 10_080)
"""Minutes that users are told; the time itself would be another one in each round."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is expected if nothing else arrives.

    Attributes:
        turns_ms: For how long those still wait that have no place, by their ids.
        end_ms: How long it takes until everything is done.
    """

    turns_ms: Mapping[RunId, float]
    end_ms: float


def outlook(order: Order, seats: Seats, capacity: Mapping[Family, Resources]) -> Outlook:
    """What is expected: each on the type that suits it best, one after the other in their order.

    Args:
        order: Of the round.
        seats: As they were given away.
        capacity: Of the fleet, by type.
    """
    ahead_ms = dict.fromkeys(capacity, 0.0)
    turns: dict[RunId, float] = {}
    end = order.bound_ms
    for turn in order.turns:
        sat = seats.seated_on(turn.one) if seats.has(turn.one) else frozenset[Family]()
        on = next(iter(sorted(sat)), None) or next(iter(turn.suits), None)
        if on is None or on not in turn.one.alone_ms:
            continue
        waits = 0.0 if sat else ahead_ms[on]
        takes = turn.one.alone_ms[on]
        if not sat:
            turns[turn.one.id] = waits
        end = max(end, waits + takes)
        share = largest_share(turn.one.demand[on], capacity[on])
        ahead_ms[on] += takes * share * (1 + turn.one.unseen)
    return Outlook(turns, end)


def reasons(order: Order, expected: Outlook) -> dict[RunId, str]:
    """Why contenders have no place, by their ids."""
    told = {}
    for turn in order.turns:
        why = "jobs that end last go first" if _before(turn, order) else "others cost less to end"
        if (wait := expected.turns_ms.get(turn.one.id)) is not None:
            why += f"; its turn is expected within {_within(wait)}"
        if turn.one.guessed:
            why += "; length unknown: taken to be as long as half of the others"
        told[turn.one.id] = why
    return told


def figures(order: Order, expected: Outlook) -> dict[str, int | float | str]:
    """Statistics of the round, by name: times in milliseconds; a type's worth per machine hour.

    The worth of a type is what part of the fleet's it has, in millionths; all sum to a million.
    """
    found: dict[str, int | float | str] = {
        "bound_ms": round(order.bound_ms),
        "expected_end_ms": round(expected.end_ms),
    }
    for family, part in order.worth.parts.items():
        found[f"worth_ppm:{family}"] = round(part * MILLION)
    return found


def _before(turn: Turn, order: Order) -> bool:
    return not turn.critical and bool(order.turns) and order.turns[0].critical


def _within(wait_ms: float) -> str:
    minutes = wait_ms / _MINUTE_MS
    most = next((it for it in _WITHIN_MIN if minutes <= it), None)
    if most is None:
        return "weeks"
    if most < 60:
        return "a minute" if most == 1 else f"{most} minutes"
    return "an hour" if most == 60 else f"{most // 60} hours"
