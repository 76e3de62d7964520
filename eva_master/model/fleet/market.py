"""Spot markets over time: how many instances of a type a zone has, and at what price."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from eva_master.model.catalog import Catalog, Offering, Purchase, spot_family, spot_price
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR, OfferingId, Price

ANY_TYPE = "*"
"""In place of a type: all types that have no pool of their own in that zone."""
_ASSUMED_LIFE_MS = 7 * 24 * MILLIS_PER_HOUR
"""For so long an instance is expected to live before the cluster has seen any."""


@dataclass(frozen=True, slots=True)
class Span:
    """A time in which nothing changes in a pool.

    Attributes:
        start_ms: From the beginning of the market.
        capacity: How many instances there may be.
        price: Micro-dollars per hour; `None` where it is stated as a part of that on demand.
        part_ppm: That part, in millionths.
    """

    start_ms: int
    capacity: int
    price: int | None = None
    part_ppm: int = 0

    def price_of(self, on_demand: Price) -> Price:
        """The price of a type that costs so much on demand, at least a micro-dollar."""
        return spot_price(on_demand, self.price, self.part_ppm)


@dataclass(frozen=True)
class Market:
    """Pools over time. After its end a market begins anew.

    Attributes:
        pools: By type, or `ANY_TYPE`, and zone: the spans from 0 on, in order.
        length_ms: When all pools end.
        offset_ms: Where it begins.
    """

    pools: Mapping[tuple[str, str], tuple[Span, ...]]
    length_ms: int
    offset_ms: int = 0

    def began_at(self, offset_ms: int) -> Market:
        """This market as seen from a later start; past its end it begins anew."""
        return replace(self, offset_ms=offset_ms % self.length_ms)

    def spans(self, machine: str, zone: str) -> tuple[Span, ...] | None:
        """The pool of a type in a zone; `None` if there is none."""
        return self.pools.get((machine, zone), self.pools.get((ANY_TYPE, zone)))

    def ends(self, spans: tuple[Span, ...]) -> list[int]:
        """When each span of a pool ends."""
        return [*(span.start_ms for span in spans[1:]), self.length_ms]

    def at(self, spans: tuple[Span, ...], now_ms: int) -> Span:
        """The span in force in a pool at a time since the beginning of a simulation."""
        place = (now_ms + self.offset_ms) % self.length_ms
        return spans[bisect_right(spans, place, key=_start) - 1]

    def next_ms(self, spans: tuple[Span, ...], now_ms: int) -> int:
        """When the next span of a pool begins; it may be like the one before."""
        place = (now_ms + self.offset_ms) % self.length_ms
        number = bisect_right(spans, place, key=_start)
        ends = spans[number].start_ms if number < len(spans) else self.length_ms
        return now_ms + ends - place

    @property
    def changes_prices(self) -> bool:
        """Whether the price of any pool ever changes."""
        return any(
            len({(span.price, span.part_ppm) for span in spans}) > 1
            for spans in self.pools.values()
        )

    def offered(self, catalog: Catalog) -> Catalog:
        """A catalog together with the market's spot offerings, at their first prices."""
        cheapest: dict[str, Offering] = {}
        for offering in catalog:
            best = cheapest.get(offering.type.name)
            bought = offering.purchase is Purchase.ON_DEMAND
            if bought and (best is None or offering.price < best.price):
                cheapest[offering.type.name] = offering
        ids = {offering.id for offering in catalog}
        more = (spot for spot in self._spot(cheapest) if spot.id not in ids)
        return (*catalog, *more)

    def _spot(self, on_demand: Mapping[str, Offering]) -> Iterator[Offering]:
        zones = sorted({zone for _, zone in self.pools})
        for name, offering in on_demand.items():
            for zone in zones:
                spans = self.spans(name, zone)
                if spans is not None:
                    yield replace(
                        offering,
                        type=replace(offering.type, family=spot_family(offering.type.family)),
                        price=self.at(spans, 0).price_of(offering.price),
                        zone=zone,
                        purchase=Purchase.SPOT,
                        limit=None,
                        interruptions_ppm=MILLION * MILLIS_PER_HOUR // _ASSUMED_LIFE_MS,
                    )

    def prices(self, catalog: Catalog, now_ms: int) -> tuple[tuple[OfferingId, Price], ...]:
        """Prices of a catalog's spot offerings at a time."""
        listed = {
            offering.type.name: offering.price
            for offering in catalog
            if offering.purchase is Purchase.ON_DEMAND
        }
        prices = []
        for offering in catalog:
            spans = self.spans(offering.type.name, offering.zone)
            if offering.purchase is Purchase.SPOT and spans is not None:
                on_demand = listed.get(offering.type.name, offering.price)
                prices.append((offering.id, self.at(spans, now_ms).price_of(on_demand)))
        return tuple(prices)


def _start(span: Span) -> int:
    return span.start_ms
