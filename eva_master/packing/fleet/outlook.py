"""When those that wait for a place in a fleet may expect it, and what they are told of that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from eva_master.model.ids import Family, RunId
from eva_master.model.resources import Resources
from eva_master.packing.fleet.contenders import Contender
from eva_master.packing.fleet.seating import Seats
from eva_master.packing.lp.least_time import largest_share

_MINUTE_MS = 60_000
_WITHIN_MIN = (1, 2, 5, 10, 20, 30, 60, 120, 180, 360, 720, 1440, 2880, 5760, 10_080)
"""Minutes that users are told; the time itself would be another one in each round."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is expected if nothing else arrives.

    Attributes:
        turns_ms: For how long those still wait that have no place, by their ids.
        end_ms: How long it takes until everything is done, if each keeps its place until then.
    """

    turns_ms: Mapping[RunId, float]
    end_ms: float


def outlook(
    queue: Iterable[tuple[Contender, Family | None]],
    seats: Seats,
    capacity: Mapping[Family, Resources],
    turn_ms: float = float("inf"),
) -> Outlook:
    """What is expected: each on the type that suits it best, one after the other in their order.

    Args:
        queue: Who chooses first, and the type that suits it best.
        seats: As they were given away.
        capacity: Of the fleet, by type.
        turn_ms: For how long each has a place at a time; by default until it ends. Those of higher
            priority keep theirs until they end.
    """
    ahead_ms, whole_ms = dict.fromkeys(capacity, 0.0), dict.fromkeys(capacity, 0.0)
    priority: int | None = None
    turns: dict[RunId, float] = {}
    end = 0.0
    for one, suits in queue:
        if priority is not None and one.job.priority < priority:
            ahead_ms = dict(whole_ms)
        priority = one.job.priority
        sat = seats.seated_on(one) if seats.has(one) else frozenset[Family]()
        on = next(iter(sorted(sat)), None) or suits
        if on is None or on not in one.alone_ms:
            continue
        waits = 0.0 if sat else ahead_ms[on]
        takes = one.alone_ms[on]
        if not sat:
            turns[one.id] = waits
        end = max(end, waits + takes)
        share = largest_share(one.demand[on], capacity[on]) * (1 + one.unseen)
        ahead_ms[on] += min(takes, turn_ms) * share
        whole_ms[on] += takes * share
    return Outlook(turns, end)


def expected_turn(expected: Outlook, one: Contender) -> str:
    """When a contender's turn is expected, to be told after why it waits; empty if unknown."""
    wait = expected.turns_ms.get(one.id)
    return "" if wait is None else f"; its turn is expected within {_within(wait)}"


def _within(wait_ms: float) -> str:
    minutes = wait_ms / _MINUTE_MS
    most = next((it for it in _WITHIN_MIN if minutes <= it), None)
    if most is None:
        return "weeks"
    if most < 60:
        return "a minute" if most == 1 else f"{most} minutes"
    return "an hour" if most == 60 else f"{most // 60} hours"
