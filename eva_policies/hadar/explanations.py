"""Explanations of a round for users: expected turns, and the worth of each type."""

from __future__ import annotations

from collections.abc import Mapping

from eva_master.model.resources import Resources
from eva_master.model.values import replace
from eva_master.packing.fleet.outlook import FleetForecast, expected_turn, outlook
from eva_master.packing.fleet.seating import Seats
from eva_policies.hadar.order import RankedContender, RoundOrder
from eva_wire.values.ids import MILLION, Family, RunId


def expectation(
    order: RoundOrder, seats: Seats, capacity: Mapping[Family, Resources]
) -> FleetForecast:
    """Forecast of the round, see `outlook`; all jobs end no earlier than the round's bound."""
    queue = ((turn.one, next(iter(turn.suits), None)) for turn in order.turns)
    forecast = outlook(queue, seats, capacity)
    return replace(forecast, end_ms=max(order.bound_ms, forecast.end_ms))


def reasons(order: RoundOrder, expected: FleetForecast) -> dict[RunId, str]:
    """Why contenders have no place, by their ids."""
    whys = {}
    for turn in order.turns:
        why = "jobs that end last go first" if _before(turn, order) else "others cost less to end"
        why += expected_turn(expected, turn.one)
        if turn.one.guessed:
            why += "; length unknown: taken to be as long as half of the others"
        whys[turn.one.id] = why
    return whys


def figures(order: RoundOrder, expected: FleetForecast) -> dict[str, int | float | str]:
    """Statistics of the round, by name: times in milliseconds; a type's worth per machine hour.

    The worth of a type is its part of the fleet's worth, in millionths; all sum to a million.
    """
    statistics: dict[str, int | float | str] = {
        "bound_ms": round(order.bound_ms),
        "expected_end_ms": round(expected.end_ms),
    }
    for family, part in order.worth.parts.items():
        statistics[f"worth_ppm:{family}"] = round(part * MILLION)
    return statistics


def _before(turn: RankedContender, order: RoundOrder) -> bool:
    return not turn.critical and bool(order.turns) and order.turns[0].critical
