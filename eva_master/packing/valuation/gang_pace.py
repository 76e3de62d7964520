"""The pace of gangs whose members run faster on some families than on others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from eva_master.model.catalog import Offering
from eva_master.packing.valuation.reservation_price import (
    Demand,
    Rates,
    Speeds,
    compared,
    hosts,
    rented,
)

Member = tuple[Demand, Rates]
"""A task's demand, and its iterations per second on each family; empty if they are unknown."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a gang needs of a member.

    Attributes:
        speeds: How fast it is of use on each family; empty if equally on all.
        others: What instances of the other members cost, in micro-dollars per hour.
    """

    speeds: Speeds = ()
    others: int = 0


def parts(members: Sequence[Member], offerings: Sequence[Offering]) -> list[Part] | None:
    """What a gang needs of its members where they are rented, else where that is possible.

    Arguments and result as of `_parts`.
    """
    bought = rented(offerings)
    found = _parts(members, bought)
    return found if found or bought is offerings else _parts(members, offerings)


def _parts(members: Sequence[Member], offerings: Sequence[Offering]) -> list[Part] | None:
    """Find out at which pace an iteration of a gang costs least (Eva, sections 4.2 and 4.4).

    A gang runs at the pace of its slowest member. To run at a given one each member needs an
    instance on which it is as fast, and the cheapest of these will do: speed beyond that is of no
    use to anyone.

    Args:
        members: Of one gang.
        offerings: Cheapest first.

    Returns:
        Per member; `None` if the pace does not matter, as every member is equally fast wherever
        it can run, or if something hosts no member at all.
    """
    if all(len({rate for _, rate in rates}) <= 1 for _, rates in members):
        return None
    counts = Counter(members)
    places = {member: _places(member, offerings) for member in counts}
    paces = sorted({rate for options in places.values() for _, rate in options if rate})
    best: tuple[Fraction, int, dict[Member, int]] | None = None
    for pace in paces:
        prices = {
            member: price
            for member, options in places.items()
            if (price := _price(options, pace)) is not None
        }
        if len(prices) == len(counts):
            total = sum(count * prices[member] for member, count in counts.items())
            cost = Fraction(total, pace)
            if best is None or cost < best[0]:  # of equally cheap ones the slowest
                best = cost, pace, prices
    if best is None:
        return None
    _, pace, prices = best
    total = sum(count * prices[member] for member, count in counts.items())
    return [Part(_useful(member[1], pace), total - prices[member]) for member in members]


def _places(member: Member, offerings: Sequence[Offering]) -> list[tuple[int, int]]:
    """Price and rate on each offering that hosts a member; a rate of 0 is unknown."""
    demand, rates = member
    known = dict(rates)
    return [
        (offering.price, known.get(offering.type.family, 0))
        for offering in offerings
        if hosts(offering, demand)
    ]


def _price(places: Sequence[tuple[int, int]], pace: int) -> int | None:
    """The least price at which a member keeps up; one of unknown rate always does."""
    return next((price for price, rate in places if rate == 0 or rate >= pace), None)


def _useful(rates: Rates, pace: int) -> Speeds:
    return compared([(family, min(rate, pace)) for family, rate in rates])
