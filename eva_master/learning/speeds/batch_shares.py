"""How a gang whose members go at their own paces divides each batch: this is the one place."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from eva_master.model.ids import MILLION


def batch_shares(rates: Sequence[int]) -> tuple[int, ...]:
    """The part of each batch that members do who divide it by how fast they are.

    Args:
        rates: Iterations per second of each where it is, in any unit; 0 for one of unknown rate,
            which counts as fast as the mean of the others.

    Returns:
        Millionths, at least 1 for each; together a million.
    """
    known = [rate for rate in rates if rate > 0]
    usual = Fraction(sum(known), len(known)) if known else Fraction(1)
    weights = [Fraction(rate) if rate > 0 else usual for rate in rates]
    total, left = sum(weights), MILLION - len(rates)
    exact = [weight * left / total for weight in weights]
    found = [int(part) for part in exact]
    # What rounding down has left over goes to those who lost most by it, of equals to the first.
    missing = left - sum(found)
    by_loss = sorted(range(len(exact)), key=lambda number: (found[number] - exact[number], number))
    for number in by_loss[:missing]:
        found[number] += 1
    return tuple(part + 1 for part in found)


def at_share(rate: Fraction, batch_ppm: int, members: int) -> Fraction:
    """How fast a gang is as far as one member is concerned, which others wait for.

    Args:
        rate: How fast the member is with an equal part of each batch.
        batch_ppm: The part that it does, in millionths; 0 for an equal one.
        members: How many the gang has.
    """
    return rate * MILLION / (batch_ppm * members) if batch_ppm else rate
