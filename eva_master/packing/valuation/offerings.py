"""Index of offerings and their prices, equal from round to round until the cloud refuses."""

from __future__ import annotations

from collections.abc import Mapping, Set

from eva_master.learning.speeds.type_rates import TypeSpeedsView
from eva_master.model.catalog import Catalog, Offering
from eva_master.packing.valuation.reservation_price import cheapest_first, purchasable, sheets
from eva_master.packing.valuation.task_classes import ShapePrices
from eva_wire.values.ids import Millis, OfferingId

_PRICES_KEPT = 4
"""Sets of offerings on sale whose prices are remembered."""


class OfferingIndex:
    """Offerings of a catalog, and of live instances.

    Args:
        catalog: The offerings on offer.
        unlisted: Offerings of live instances that are no longer in the catalog.

    Attributes:
        catalog: The offerings on offer.
        unlisted: Offerings of live instances that are no longer in the catalog.
        listed: The ids of the catalog.
        offerings: All of them, cheapest first.
        by_id: All offerings by id, cheapest first.
        dearest: All offerings by id, the dearest first, equal prices by offering id.
        type_speeds: Expected speeds of their families, by measurements.
    """

    def __init__(self, catalog: Catalog, unlisted: Mapping[OfferingId, Offering]) -> None:
        self.catalog = catalog
        self.unlisted = unlisted
        offered = {offering.id: offering for offering in catalog}
        self.listed = frozenset(offered)
        self.offerings = cheapest_first({**unlisted, **offered}.values())
        self.by_id: Mapping[OfferingId, Offering] = {o.id: o for o in self.offerings}
        self.dearest = sorted(self.by_id.items(), key=lambda item: -item[1].price)
        self.type_speeds = TypeSpeedsView(sheets(self.offerings))
        self._offered = tuple(o for name, o in self.by_id.items() if name in offered)
        self._prices: tuple[ShapePrices, ...] = ()

    def prices(self, now: Millis) -> ShapePrices:
        """Reservation prices at the offerings on sale at a time."""
        buyable = tuple(offering for offering in self._offered if purchasable(offering, now))
        for priced in self._prices:
            if priced.on_sale == buyable:
                return priced
        fresh = ShapePrices(self.offerings, buyable)
        self._prices = (fresh, *self._prices[: _PRICES_KEPT - 1])
        return fresh


def unlisted(
    listed: Set[OfferingId], bought: Mapping[OfferingId, Offering]
) -> dict[OfferingId, Offering]:
    """Offerings of instances that are no longer in the catalog, of which `listed` are the ids."""
    return {name: offering for name, offering in bought.items() if name not in listed}
