"""What can be bought, and at what prices: the same from round to round, until the cloud objects."""

from __future__ import annotations

from collections.abc import Mapping, Set

from eva_master.learning.speeds.type_rates import TypeSpeedsView
from eva_master.model.catalog import Catalog, Offering
from eva_master.model.ids import Millis, OfferingId
from eva_master.packing.valuation.reservation_price import cheapest_first, purchasable, sheets
from eva_master.packing.valuation.task_classes import ShapePrices

_PRICES_KEPT = 4
"""Sets of offerings on sale whose prices are remembered."""


class OfferingIndex:
    """The offerings of a catalog, and what live instances were bought as.

    Args:
        catalog: What is offered.
        unlisted: What instances were bought as if that is no longer in it.

    Attributes:
        catalog: Likewise.
        unlisted: Likewise.
        listed: The ids of the catalog.
        offerings: All of them, cheapest first.
        by_id: The same by id, cheapest first.
        dearest: The same, the dearest first, equal prices by offering id.
        type_speeds: How fast their families are expected to be, by what was measured.
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
        """Reservation prices at what is on sale at a time."""
        buyable = tuple(offering for offering in self._offered if purchasable(offering, now))
        for known in self._prices:
            if known.on_sale == buyable:
                return known
        found = ShapePrices(self.offerings, buyable)
        self._prices = (found, *self._prices[: _PRICES_KEPT - 1])
        return found


def unlisted(
    listed: Set[OfferingId], bought: Mapping[OfferingId, Offering]
) -> dict[OfferingId, Offering]:
    """What was bought and is not in the catalog any more, of which `listed` are the ids."""
    return {name: offering for name, offering in bought.items() if name not in listed}
