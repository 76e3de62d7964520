"""Explanations of a round for users: the price of others' room, and the worth needed to run now."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from eva_master.model.planning.plan import Plan, Suspend
from eva_master.model.values import replace
from eva_policies.astraea.guarantee import Guarantee
from eva_policies.astraea.prices import PricedAllotment
from eva_policies.astraea.requests import RoomRequest
from eva_policies.astraea.requests_from_snapshot import RoomRequests
from eva_wire.values.ids import MILLION, RunId

_TOLD = 64
"""Of so many types and tenants at most a round's figures tell."""
_DIGITS = 100
"""Amounts are told to two digits, rounded up: exact ones would be others in each round."""


def waiting(
    asked: RoomRequests, priced: PricedAllotment, has: Callable[[str], bool]
) -> dict[RunId, str]:
    """Reasons of contenders without a place, by their ids, with the worth that they would need.

    Args:
        asked: The asks of the round.
        priced: The allotment and its prices.
        has: Whether a contender has its place.
    """
    whys = {}
    for name, ask in asked.asks.items():
        if not has(name):
            whys[RunId(name)] = _why(ask, asked, priced)
    return whys


def _why(ask: RoomRequest, asked: RoomRequests, priced: PricedAllotment) -> str:
    if ask.unlent:
        return f"its tenant's quota is in use, and it is lent nothing: {ask.unlent}"
    price = priced.posted.get(ask.id, _price(ask, priced))
    if price > ask.per_gpu_hour:
        return (
            f"its quota is in use, and a GPU of others costs {dollars(price)} per hour: more than "
            f"the {dollars(ask.per_gpu_hour)} that an hour of waiting costs it per GPU"
        )
    ahead = [
        other
        for other in asked.asks.values()
        if (share := priced.allotment.shares.get(other.id)) is not None
        and share.borrowed
        and share.family in ask.need
        and not other.fixed
    ]
    if not ahead:
        return "its quota is in use, and nothing is idle"
    last = min(ask.against_work for ask in ahead)
    own = ask.against_work
    needed = -(-ask.loss * last // own) if own else Fraction(0)
    if not own or last < own:
        return "waits for room: what could give way keeps its place for a while, or is too little"
    return (
        "others lose more by waiting: it would run now if an hour of waiting cost it "
        f"{dollars(int(needed))} instead of {dollars(ask.loss)}"
    )


def _price(ask: RoomRequest, priced: PricedAllotment) -> int:
    return min((priced.prices.get(family, 0) for family in ask.need), default=0)


def dollars(micro: int) -> str:
    """An amount to two digits, rounded up, as ``$0.41``."""
    unit = 1
    while -(-micro // unit) >= _DIGITS:
        unit *= 10
    rounded = -(-micro // unit) * unit
    digits = max(2, 6 - len(str(unit)) + 1) if unit < MILLION else 0
    return f"${rounded / MILLION:.{min(6, digits)}f}"


def named(plan: Plan, asked: RoomRequests, priced: PricedAllotment) -> Plan:
    """A plan whose suspensions of borrowers name the job that has its quota back.

    Args:
        plan: The round's plan.
        asked: The asks of the round.
        priced: The allotment and its prices.
    """
    came = [
        ask
        for ask in sorted(asked.asks.values(), key=lambda it: it.rank)
        if not ask.now
        and (share := priced.allotment.shares.get(ask.id)) is not None
        and share.own
        and not share.borrowed
    ]
    if not came:
        return plan
    owners = {
        run.id: contender.job.spec.tenant
        for contender in asked.contenders.values()
        for run in contender.runs
    }
    entries = []
    for entry in plan.entries:
        if isinstance(entry, Suspend):
            lender = next((ask for ask in came if ask.tenant != owners.get(entry.run)), None)
            if lender is not None:
                reason = f"{lender.tenant} has its quota back, for {lender.job}"
                entry = replace(entry, reason=reason)  # noqa: PLW2901
        entries.append(entry)
    return replace(plan, entries=tuple(entries))


def figures(priced: PricedAllotment, guarantee: Guarantee) -> dict[str, int | float | str]:
    """Statistics of a round: prices and accounts in micro-dollars, by type and by tenant."""
    statistics: dict[str, int | float | str] = {
        "borrowed_gpus": sum(share.borrowed for share in priced.allotment.shares.values())
    }
    for family in sorted(priced.allotment.free)[:_TOLD]:
        statistics[f"price:{family}"] = priced.prices.get(family, 0)
    for name, position in sorted(guarantee.positions.items())[:_TOLD]:
        statistics[f"alone:{name}"] = position.twin + position.pending
        if owed := guarantee.uncovered.get(name):
            statistics[f"owed:{name}"] = owed
    return statistics
