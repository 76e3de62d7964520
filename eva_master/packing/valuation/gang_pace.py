"""The pace of gangs whose members run faster on some families than on others.

Members that do equal parts of each batch go at the pace of the slowest. Members that divide batches
by how fast they are go at the mean of their speeds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from eva_master.model.catalog import Offering
from eva_master.packing.valuation.reservation_price import (
    Demand,
    Rates,
    Speeds,
    compared,
    counted_price,
    hosts,
    rented,
)

Member = tuple[Demand, Rates]
"""A task's demand, and its iterations per second on each family; empty if they are unknown."""


@dataclass(frozen=True, slots=True)
class GangPart:
    """A member's part in its gang, for its valuation.

    Attributes:
        speeds: Useful speed on each family; empty if equal on all.
        others: Price of the other members' instances, in micro-dollars per hour.
        split: Whether its gang divides batches by speed. Then `speeds` are those of the whole gang,
            with its other members where they are worth most, and a faster family is of use.
    """

    speeds: Speeds = ()
    others: int = 0
    split: bool = False


def parts(
    members: Sequence[Member], offerings: Sequence[Offering], *, split: bool = False
) -> list[GangPart] | None:
    """Parts of a gang's members on rented instances, or on owned nodes if no rented ones host it.

    Args:
        members: Demand and rates of each member.
        offerings: The offerings, cheapest first.
        split: Whether the members divide batches by their speeds.

    Returns:
        Per member; `None` if the pace does not matter, as every member is equally fast wherever
        it can run, or if something hosts no member at all.
    """
    if all(len({rate for _, rate in rates}) <= 1 for _, rates in members):
        return None
    make, bought = _split_parts if split else _parts, rented(offerings)
    result = make(members, bought)
    return result if result or bought is offerings else make(members, offerings)


def _parts(members: Sequence[Member], offerings: Sequence[Offering]) -> list[GangPart] | None:
    """Find out at which pace an iteration of a gang costs least (Eva, sections 4.2 and 4.4).

    A gang runs at the pace of its slowest member. To run at a given one each member needs an
    instance on which it is as fast, and the cheapest of these will do: speed beyond that is of no
    use to anyone.

    Args:
        members: Of one gang.
        offerings: Cheapest first.

    Returns:
        Per member; `None` if something hosts no member at all.
    """
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
    return [GangPart(_useful(member[1], pace), total - prices[member]) for member in members]


def _places(member: Member, offerings: Sequence[Offering]) -> list[tuple[int, int]]:
    """Price and rate on each offering that hosts a member; a rate of 0 is unknown."""
    demand, rates = member
    rate_on = dict(rates)
    return [
        (counted_price(offering), rate_on.get(offering.type.family, 0))
        for offering in offerings
        if hosts(offering, demand)
    ]


def _price(places: Sequence[tuple[int, int]], pace: int) -> int | None:
    """The least price at which a member keeps up; one of unknown rate always does."""
    return next((price for price, rate in places if rate == 0 or rate >= pace), None)


def _split_parts(members: Sequence[Member], offerings: Sequence[Offering]) -> list[GangPart] | None:
    """Parts of members that divide batches by their speeds.

    The gang has the mean speed of its members, so the cost of an iteration is the sum of their
    prices over the sum of their speeds. The minimum is found by Dinkelbach's method: at one cost of
    a unit of speed, each member gets the instance that is worth most beyond its price; the next
    cost is that of this choice, and lower than the one before.

    Args:
        members: Members of one gang. A member of unknown rate is equally fast everywhere.
        offerings: Cheapest first.
    """
    counts = Counter(members)
    places = {member: _places(member, offerings) for member in counts}
    if not all(places.values()):
        return None
    chosen = {member: options[0] for member, options in places.items()}
    cost = None
    while True:
        price, speed = _together(chosen, counts)
        if speed == 0:
            return None
        if cost is not None and Fraction(price, speed) >= cost:
            break
        cost = Fraction(price, speed)
        chosen = {member: _worth_most(options, cost) for member, options in places.items()}
    return [
        GangPart(
            compared([(family, speed - chosen[member][1] + rate) for family, rate in member[1]]),
            price - chosen[member][0],
            split=True,
        )
        for member in members
    ]


def _together(
    chosen: Mapping[Member, tuple[int, int]], counts: Mapping[Member, int]
) -> tuple[int, int]:
    """Price and speed of a gang, summed over its members."""
    price = sum(count * chosen[member][0] for member, count in counts.items())
    return price, sum(count * chosen[member][1] for member, count in counts.items())


def _worth_most(places: Sequence[tuple[int, int]], cost: Fraction) -> tuple[int, int]:
    """The place with the largest worth beyond its price, of equals the first."""
    return min(places, key=lambda place: place[0] - cost * place[1])


def _useful(rates: Rates, pace: int) -> Speeds:
    return compared([(family, min(rate, pace)) for family, rate in rates])
