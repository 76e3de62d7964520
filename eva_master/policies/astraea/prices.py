"""What room of others costs: the price that clears it, one that is posted before, or nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from eva_master.model.arithmetic.money import split
from eva_master.model.ids import Family, JobId
from eva_master.model.planning.tenancy import ANY_FAMILY, Terms
from eva_master.packing.fleet.posted_price import posted_price
from eva_master.policies.astraea.allotting import Allotment, Allotting, Rules, left_out
from eva_master.policies.astraea.asks import Ask

_THOUSAND = 1000


@dataclass(frozen=True, slots=True)
class Priced:
    """A round at its prices.

    Attributes:
        allotment: Who gets what.
        prices: Of each type, in micro-dollars per GPU-hour; what is not named costs nothing.
        posted: What each ask was asked for, where prices are posted one after the other.
    """

    allotment: Allotment
    prices: Mapping[Family, int]
    posted: Mapping[str, int]

    def rate(self, ask: Ask, family: Family) -> int:
        """What an ask pays per GPU-hour: never more than waiting would cost it."""
        return min(self.posted.get(ask.id, self.prices.get(family, 0)), ask.per_gpu_hour)


def free(rules: Rules, asks: Sequence[Ask]) -> Priced:
    """Give everything away for nothing."""
    return Priced(Allotting(rules, asks).allot(), {}, {})


def clearing(rules: Rules, asks: Sequence[Ask]) -> Priced:
    """At what waiting costs the best job that gets nothing, for each type by itself.

    A job to which waiting costs less does not borrow. The price is the highest up to that at which
    nothing stays idle; so it is 0 where something does, and where nobody is left out.
    """
    priced = free(rules, asks)
    prices: dict[Family, int] = {}
    for family in sorted(rules.capacity):
        if not _lenders(priced.allotment, family) or priced.allotment.free[family].gpus:
            continue
        best = next((it for it in left_out(asks, priced.allotment) if _wants(it, family)), None)
        if best is None or best.per_gpu_hour == 0:
            continue
        steps = sorted({it.per_gpu_hour for it in asks if 0 < it.per_gpu_hour <= best.per_gpu_hour})
        low, found = 0, priced
        high = len(steps)
        while low < high:
            middle = (low + high + 1) // 2
            tried = _at(rules, asks, {**prices, family: steps[middle - 1]})
            if tried.allotment.free[family].gpus:
                high = middle - 1
            else:
                low, found = middle, tried
        priced, prices = found, dict(found.prices)
    return priced


def posted(rules: Rules, asks: Sequence[Ask], full: int) -> Priced:
    """At prices that grow with the share in use: 0 while nothing is, `full` when everything is.

    Jobs are asked in the order of submission, and take the price or leave it: it does not hang on
    what they say.

    Args:
        rules: How the round is played, by arrival.
        asks: Who asks.
        full: Micro-dollars per GPU-hour.
    """
    told: dict[str, int] = {}

    def accepts(ask: Ask, family: Family, used: int) -> bool:
        if not rules.quotas:
            return True
        told[ask.id] = posted_price(full, used, rules.capacity[family].gpus)
        return ask.per_gpu_hour >= told[ask.id]

    return Priced(Allotting(rules, asks).allot(accepts), {}, told)


def _at(rules: Rules, asks: Sequence[Ask], prices: Mapping[Family, int]) -> Priced:
    def accepts(ask: Ask, family: Family, used: int) -> bool:
        del used
        return ask.per_gpu_hour >= prices.get(family, 0)

    return Priced(Allotting(rules, asks).allot(accepts), prices, {})


def _wants(ask: Ask, family: Family) -> bool:
    return family in ask.need and ask.gpus(family) > 0


def _lenders(allotment: Allotment, family: Family) -> dict[str, int]:
    """What each tenant leaves idle on a type."""
    found = {}
    for name, left in allotment.idle.items():
        idle = max(0, left.get(family, 0)) + max(0, left.get(ANY_FAMILY, 0))
        if idle:
            found[name] = idle
    return found


def terms_of(priced: Priced, asks: Sequence[Ask], closed: frozenset[str]) -> tuple[Terms, ...]:
    """On what terms jobs have room of others.

    A price is divided over those who lend, in proportion to what they leave idle. What belongs to
    nobody costs nothing.

    Args:
        priced: The round.
        asks: Who asked.
        closed: Tenants that lend nothing.
    """
    found: dict[str, list[Terms]] = {}
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
        found.setdefault(ask.job, []).append(
            Terms(
                JobId(ask.job),
                share.borrowed,
                tuple(zip(names, amounts[:-1], strict=True)),
                tuple(lent[:-1]),
            )
        )
    return tuple(_together(found[job]) for job in sorted(found))


def _together(parts: Sequence[Terms]) -> Terms:
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
    return Terms(
        parts[0].job,
        sum(part.gpus for part in parts),
        tuple((name, amounts[name]) for name in names),
        tuple(lent[name] for name in names),
    )
