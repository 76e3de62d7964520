"""When those that wait for a place in a fleet may expect it, and what they are told of that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from eva_master.model.resources import Resources
from eva_master.packing.fleet.contenders import Contender
from eva_master.packing.fleet.seating import Seats
from eva_master.packing.lp.least_time import largest_share
from eva_wire.values.ids import Family, RunId

_MINUTE_MS = 60_000
_WITHIN_MIN = (1, 2, 5, 10, 20, 30, 60, 120, 180, 360, 720, 1440, 2880, 5760, 10_080)
"""Minutes that users are told; the time itself would be another one in each round."""


@dataclass(frozen=True, slots=True)
class FleetForecast:
    """Forecast for the contenders if nothing else arrives.

    Attributes:
        turns_ms: How long contenders without a place still wait, by their ids.
        end_ms: Time until all are done, if each keeps its place until then.
    """

    turns_ms: Mapping[RunId, float]
    end_ms: float


def outlook(
    queue: Iterable[tuple[Contender, Family | None]],
    seats: Seats,
    capacity: Mapping[Family, Resources],
    turn_ms: float = float("inf"),
) -> FleetForecast:
    """Forecast with each contender on its best type, one after the other in their order.

    Args:
        queue: Contenders in the order of choice, each with its best type.
        seats: The seats given so far.
        capacity: Capacity of the fleet, by type.
        turn_ms: How long a contender has a place at a time; by default until it ends. Contenders of
            higher priority keep theirs until they end.
    """
    ahead_ms, whole_ms = dict.fromkeys(capacity, 0.0), dict.fromkeys(capacity, 0.0)
    priority: int | None = None
    turns: dict[RunId, float] = {}
    end = 0.0
    for contender, suits in queue:
        if priority is not None and contender.job.priority < priority:
            ahead_ms = dict(whole_ms)
        priority = contender.job.priority
        sat = seats.seated_on(contender) if seats.has(contender) else frozenset[Family]()
        on = next(iter(sorted(sat)), None) or suits
        if on is None or on not in contender.alone_ms:
            continue
        waits = 0.0 if sat else ahead_ms[on]
        takes = contender.alone_ms[on]
        if not sat:
            turns[contender.id] = waits
        end = max(end, waits + takes)
        share = largest_share(contender.demand[on], capacity[on]) * (1 + contender.unseen)
        ahead_ms[on] += min(takes, turn_ms) * share
        whole_ms[on] += takes * share
    return FleetForecast(turns, end)


def expected_turn(expected: FleetForecast, one: Contender) -> str:
    """When a contender's turn is expected, to be told after why it waits; empty if unknown."""
    wait = expected.turns_ms.get(one.id)
    return "" if wait is None else f"; its turn is expected within {_within(wait)}"


def _within(wait_ms: float) -> str:
    minutes = wait_ms / _MINUTE_MS
    most = next((minutes_named for minutes_named in _WITHIN_MIN if minutes <= minutes_named), None)
    if most is None:
        return "weeks"
    if most < 60:
        return "a minute" if most == 1 else f"{most} minutes"
    return "an hour" if most == 60 else f"{most // 60} hours"
