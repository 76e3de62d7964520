"""Price of others' room: the clearing price, a posted price, or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eva_master.model.arithmetic.money import split
from eva_master.model.tenants.tenancy import ANY_FAMILY, LoanTerms
from eva_master.packing.fleet.posted_price import posted_price
from eva_policies.astraea.allotting import Allotment, AllotmentRules, Allotting, left_out
from eva_policies.astraea.requests import RoomRequest
from eva_wire.values.ids import Family, JobId

_THOUSAND = 1000


@dataclass(frozen=True, slots=True)
class PricedAllotment:
    """A round's allotment at its prices.

    Attributes:
        allotment: The allotment.
        prices: Price of each type, in micro-dollars per GPU-hour; types without an entry are free.
        posted: Price offered to each ask, where prices are posted one after the other.
    """

    allotment: Allotment
    prices: Mapping[Family, int]
    posted: Mapping[str, int]

    def rate(self, ask: RoomRequest, family: Family) -> int:
        """Payment of an ask per GPU-hour: never more than its cost of waiting."""
        return min(self.posted.get(ask.id, self.prices.get(family, 0)), ask.per_gpu_hour)


def free(rules: AllotmentRules, asks: Sequence[RoomRequest]) -> PricedAllotment:
    """Give everything away for nothing."""
    return PricedAllotment(Allotting(rules, asks).allot(), {}, {})


def clearing(rules: AllotmentRules, asks: Sequence[RoomRequest]) -> PricedAllotment:
    """Price each type at the cost of waiting of the best job that gets nothing.

    A job with a lower cost of waiting does not borrow. The price is the highest up to this one at
    which no room stays idle; so it is 0 if some does anyway, and if no job is left out.
    """
    priced = free(rules, asks)
    prices: dict[Family, int] = {}
    for family in sorted(rules.capacity):
        if not _lenders(priced.allotment, family) or priced.allotment.free[family].gpus:
            continue
        best = next((ask for ask in left_out(asks, priced.allotment) if _wants(ask, family)), None)
        if best is None or best.per_gpu_hour == 0:
            continue
        steps = sorted(
            {ask.per_gpu_hour for ask in asks if 0 < ask.per_gpu_hour <= best.per_gpu_hour}
        )
        low, best_round = 0, priced
        high = len(steps)
        while low < high:
            middle = (low + high + 1) // 2
            tried = _at(rules, asks, {**prices, family: steps[middle - 1]})
            if tried.allotment.free[family].gpus:
                high = middle - 1
            else:
                low, best_round = middle, tried
        priced, prices = best_round, dict(best_round.prices)
    return priced


def posted(rules: AllotmentRules, asks: Sequence[RoomRequest], full: int) -> PricedAllotment:
    """Post prices that grow with the share in use: 0 when none is, `full` when all are.

    Jobs are asked in the order of submission, and take the price or leave it: it does not depend on
    their statements.

    Args:
        rules: The rules of the round, by arrival.
        asks: The asks.
        full: Micro-dollars per GPU-hour.
    """
    offers: dict[str, int] = {}

    def accepts(ask: RoomRequest, family: Family, used: int) -> bool:
        if not rules.quotas:
            return True
        offers[ask.id] = posted_price(full, used, rules.capacity[family].gpus)
        return ask.per_gpu_hour >= offers[ask.id]

    return PricedAllotment(Allotting(rules, asks).allot(accepts), {}, offers)


def _at(
    rules: AllotmentRules, asks: Sequence[RoomRequest], prices: Mapping[Family, int]
) -> PricedAllotment:
    def accepts(ask: RoomRequest, family: Family, used: int) -> bool:
        del used
        return ask.per_gpu_hour >= prices.get(family, 0)

    return PricedAllotment(Allotting(rules, asks).allot(accepts), prices, {})


def _wants(ask: RoomRequest, family: Family) -> bool:
    return family in ask.need and ask.gpus(family) > 0


def _lenders(allotment: Allotment, family: Family) -> dict[str, int]:
    """Idle GPUs of each tenant on a type."""
    idle_gpus = {}
    for name, rest in allotment.idle.items():
        idle = max(0, rest.get(family, 0)) + max(0, rest.get(ANY_FAMILY, 0))
        if idle:
            idle_gpus[name] = idle
    return idle_gpus


def terms_of(
    priced: PricedAllotment, asks: Sequence[RoomRequest], closed: frozenset[str]
) -> tuple[LoanTerms, ...]:
    """Terms on which jobs have room of others.

    A price is divided among the lenders, in proportion to their idle GPUs. Room without an owner is
    free.

    Args:
        priced: The round.
        asks: The asks.
        closed: Tenants that lend nothing.
    """
    terms: dict[str, list[LoanTerms]] = {}
    for ask in asks:
        share = priced.allotment.shares.get(ask.id)
        if share is None or not share.borrowed:
            continue
        lenders = {
            name: idle
            for name, idle in _lenders(priced.allotment, share.family).items()
            if name not in closed or name == ask.tenant
        }
        if not lenders:
            continue
        nobodys = max(0, priced.allotment.lent[share.family] - sum(lenders.values()))
        names = sorted(lenders)
        weights = [*(lenders[name] for name in names), nobodys]
        amounts = split(priced.rate(ask, share.family) * share.borrowed, weights)
        lent = split(_THOUSAND * share.borrowed, weights)
        terms.setdefault(ask.job, []).append(
            LoanTerms(
                JobId(ask.job),
                share.borrowed,
                tuple(zip(names, amounts[:-1], strict=True)),
                tuple(lent[:-1]),
            )
        )
    return tuple(_together(terms[job]) for job in sorted(terms))


def _together(parts: Sequence[LoanTerms]) -> LoanTerms:
    """The terms of a job of which several tasks borrow."""
    if len(parts) == 1:
        return parts[0]
    amounts: dict[str, int] = {}
    lent: dict[str, int] = {}
    for part in parts:
        for (name, amount), gpus in zip(part.lenders, part.lent, strict=True):
            amounts[name] = amounts.get(name, 0) + amount
            lent[name] = lent.get(name, 0) + gpus
    names = sorted(amounts)
    return LoanTerms(
        parts[0].job,
        sum(part.gpus for part in parts),
        tuple((name, amounts[name]) for name in names),
        tuple(lent[name] for name in names),
    )
