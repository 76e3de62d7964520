"""A lower bound on the cost of a trace in a spot market: at each moment by what is there then.

As `lower_bound`, with the instances that pools have at each moment, as many as anybody wants, at
the prices of that moment. Jobs run from their arrival on: who waits for a cheaper time may cost
less.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from eva_lab.simulator.results.lower_bound import ReferenceBound, Watch
from eva_master.model.catalog import Catalog, Offering, Purchase
from eva_master.model.fleet.market import Market
from eva_master.model.trace import Trace


def market_bound(trace: Trace, catalog: Catalog, market: Market, watch: Watch | None = None) -> int:
    """The bound (see `eva_wire.values.ids.Exact`).

    Args:
        trace: The jobs that arrive.
        catalog: Offerings on sale, those of the market among them.
        market: Their capacity over time.
        watch: See `reference_bound`.
    """
    sold = _sold(catalog, market, 0)
    whole = ReferenceBound(trace, sold)
    bounds = {sold: whole}
    times = sorted({*whole.times, *_changes(catalog, market, whole.times[-1])})
    total = 0
    for done, (at, until) in enumerate(pairwise(times)):
        sold = _sold(catalog, market, at)
        bound = bounds.get(sold)
        if bound is None:
            bound = bounds[sold] = ReferenceBound(trace, sold)
        total += bound.between(at, until)
        if watch is not None:
            watch(done + 1, len(times) - 1)
    return ReferenceBound.summed(total)


def _sold(catalog: Catalog, market: Market, now: int) -> Catalog:
    """Offerings on demand, and the cheapest available pool of each type."""
    prices = dict(market.prices(catalog, now))
    cheapest: dict[str, Offering] = {}
    others = []
    for offering in catalog:
        spans = market.spans(offering.type.name, offering.zone)
        if offering.purchase is not Purchase.SPOT or spans is None:
            others.append(offering)
        elif market.at(spans, now).capacity:
            priced = replace(offering, price=prices[offering.id])
            best = cheapest.setdefault(offering.type.name, priced)
            if priced.price < best.price:
                cheapest[offering.type.name] = priced
    return (*others, *cheapest.values())


def _changes(catalog: Catalog, market: Market, end: int) -> Iterator[int]:
    """When anything changes in a pool, until the end."""
    pools = {
        market.spans(offering.type.name, offering.zone)
        for offering in catalog
        if offering.purchase is Purchase.SPOT
    }
    for spans in pools - {None}:
        assert spans is not None
        now = market.next_ms(spans, 0)
        while now < end:
            yield now
            now = market.next_ms(spans, now)
