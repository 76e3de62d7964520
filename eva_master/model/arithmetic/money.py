"""Exact amounts, divided without loss."""

from __future__ import annotations

from collections.abc import Sequence

from eva_wire.values.bounds import MOST_STATED
from eva_wire.values.ids import MILLION


def split(amount: int, weights: Sequence[int]) -> list[int]:
    """Divide an amount in proportion to weights so that the parts, if any, add up to it exactly.

    The parts are rounded down and what is left goes to the first ones, a unit each.
    """
    if not weights:
        return []
    total = sum(weights)
    if total == 0:
        weights, total = [1] * len(weights), len(weights)
    parts = [amount * weight // total for weight in weights]
    for index in range(amount - sum(parts)):
        parts[index] += 1
    return parts


def dollars(micro_usd: int) -> str:
    """Write money for users, to a hundredth of a cent where that is all there is."""
    amount = micro_usd / MILLION
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:,.4f}"


def next_cap(micro_usd: int) -> int:
    """The cap to suggest for a job that has come to one, in whole dollars."""
    return min(2 * micro_usd // MILLION + 1, MOST_STATED // MILLION)
