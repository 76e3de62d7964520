"""How a gang whose members go at their own paces divides each batch: this is the one place."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from eva_wire.values.ids import MILLION


def batch_shares(rates: Sequence[int]) -> tuple[int, ...]:
    """Parts of each batch for members that divide it by their speeds.

    Args:
        rates: Iterations per second of each member where it is, in any unit; 0 for a member of
            unknown rate, which counts as fast as the mean of the others.

    Returns:
        Millionths, at least 1 for each member; the sum is a million.
    """
    positive = [rate for rate in rates if rate > 0]
    usual = Fraction(sum(positive), len(positive)) if positive else Fraction(1)
    weights = [Fraction(rate) if rate > 0 else usual for rate in rates]
    total, divided = sum(weights), MILLION - len(rates)
    exact = [weight * divided / total for weight in weights]
    parts = [int(part) for part in exact]
    # Remainders of rounding down go to the members that lost most, of equal losses to the first.
    missing = divided - sum(parts)
    by_loss = sorted(range(len(exact)), key=lambda number: (parts[number] - exact[number], number))
    for number in by_loss[:missing]:
        parts[number] += 1
    return tuple(part + 1 for part in parts)


def at_share(rate: Fraction, batch_ppm: int, members: int) -> Fraction:
    """How fast a gang is as far as one member is concerned, which others wait for.

    Args:
        rate: How fast the member is with an equal part of each batch.
        batch_ppm: The part that it does, in millionths; 0 for an equal one.
        members: How many the gang has.
    """
    return rate * MILLION / (batch_ppm * members) if batch_ppm else rate
