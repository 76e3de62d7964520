"""Makes spot markets up, from a seed.

Pools come and go by themselves, for times that are Weibull distributed with a shape below one, as
they were on EC2: who has just come back is soon gone. Now and then a shock takes many pools of a
region away within ten minutes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from eva_master.learning.market.pools import SpotPool
from eva_master.model.fleet.market import ANY_TYPE, Market, Span
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR

_DAY_MS = 24 * MILLIS_PER_HOUR
_SHOCK_MS = 600_000
_PRICE_SPREAD_PPM = 150_000


@dataclass(frozen=True, slots=True)
class Climate:
    """Parameters of made-up pools.

    Attributes:
        types: Types with pools of their own; `ANY_TYPE` for one that all types share.
        zones: Where there are pools.
        length_ms: How long the market is.
        there_h: How many hours a pool is there on average, if there are no shocks.
        away_h: How many it is away.
        shape: Of both times; with 1 age does not matter, below it what is young ends soonest.
        shocks: How many a region has per day.
        shaken: The part of the pools of a region that a shock takes away.
        capacity: How many instances a pool has when it is there.
        price_ppm: Price of a spot instance, in millionths of the price on demand, on average of all
            pools.
        prices: How often a pool's price changes per day.
    """

    types: Sequence[str] = (ANY_TYPE,)
    zones: Sequence[str] = ("zone-a", "zone-b", "zone-c")
    length_ms: int = 30 * _DAY_MS
    there_h: float = 4.0
    away_h: float = 1.0
    shape: float = 0.6
    shocks: float = 0.5
    shaken: float = 0.7
    capacity: int = 1_000
    price_ppm: int = 350_000
    prices: float = 1.0


def made_market(seed: int, climate: Climate) -> Market:
    """Make a market up. Equal arguments make equal markets."""
    regions = {SpotPool("", zone).region for zone in climate.zones}
    shocks = {
        region: tuple(_times(_dice(seed, region), climate.shocks, climate.length_ms))
        for region in regions
    }
    pools = {
        (machine, zone): tuple(
            _spans(_dice(seed, machine, zone), climate, shocks[SpotPool(machine, zone).region])
        )
        for machine in climate.types
        for zone in climate.zones
    }
    return Market(pools, climate.length_ms)


def _dice(*of: object) -> Random:
    return Random(" ".join(map(str, of)))  # noqa: S311 - nothing secret


def _times(random: Random, per_day: float, length_ms: int) -> Iterator[int]:
    """When something happens that has no memory."""
    at = 0.0
    while per_day > 0:
        at += random.expovariate(per_day) * _DAY_MS
        if at >= length_ms:
            return
        yield round(at)


def _spans(random: Random, climate: Climate, shocks: Sequence[int]) -> Iterator[Span]:
    """A pool from the beginning on, one span for each change of what it has or costs."""
    price_ppm = _varied(random, climate.price_ppm)
    changing = [0, *_times(random, climate.prices, climate.length_ms)]
    prices = {at: _varied(random, price_ppm, part=3) for at in changing}
    changes = dict(_changes(random, climate, shocks))
    present, shown = False, (-1, 0)
    for at in sorted({*prices, *changes}):
        price_ppm, present = prices.get(at, price_ppm), changes.get(at, present)
        capacity = climate.capacity if present else 0
        if (capacity, price_ppm) != shown:
            yield Span(at, capacity, None, price_ppm)
        shown = capacity, price_ppm


def _varied(random: Random, price_ppm: int, part: int = 1) -> int:
    spread = _PRICE_SPREAD_PPM // part
    around = price_ppm * (MILLION + random.randint(-spread, spread)) // MILLION
    return max(100, around // 100 * 100)  # Hundredths of a per cent, which a file can state.


def _changes(random: Random, climate: Climate, shocks: Sequence[int]) -> Iterator[tuple[int, bool]]:
    """When a pool comes and goes."""
    present = random.random() * (climate.there_h + climate.away_h) < climate.there_h
    hit = [at + random.randrange(_SHOCK_MS) for at in shocks if random.random() < climate.shaken]
    at = 0
    while at < climate.length_ms:
        yield at, present
        ends = at + _lasts(random, climate.there_h if present else climate.away_h, climate.shape)
        if present:
            ends = min([ends, *(shock for shock in hit if shock > at)])
        at, present = ends, not present


def _lasts(random: Random, mean_h: float, shape: float) -> int:
    scale = mean_h / math.gamma(1 + 1 / shape)
    return max(1_000, round(random.weibullvariate(scale, shape) * 3_600) * 1_000)


def shares(market: Market) -> Mapping[tuple[str, str], float]:
    """For what part of the time each pool is there."""
    shares_of = {}
    for name, spans in market.pools.items():
        lives = zip(spans, market.ends(spans), strict=True)
        up = sum(end - span.start_ms for span, end in lives if span.capacity)
        shares_of[name] = up / market.length_ms
    return shares_of
