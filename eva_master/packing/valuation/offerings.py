"""What can be bought, and at what prices: the same from round to round, until the cloud objects."""

from __future__ import annotations

from collections.abc import Mapping, Set

from eva_master.model.catalog import Catalog, Offering
from eva_master.model.ids import Millis, OfferingId
from eva_master.packing.valuation.reservation_price import cheapest_first, purchasable
from eva_master.packing.valuation.task_classes import Pricing

_KEPT = 4
"""Markets, and prices of each, that are remembered."""


class Market:
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
    """

    def __init__(self, catalog: Catalog, unlisted: Mapping[OfferingId, Offering]) -> None:
        self.catalog = catalog
        self.unlisted = unlisted
        offered = {offering.id: offering for offering in catalog}
        self.listed = frozenset(offered)
        self.offerings = cheapest_first({**unlisted, **offered}.values())
        self.by_id: Mapping[OfferingId, Offering] = {o.id: o for o in self.offerings}
        self.dearest = sorted(self.by_id.items(), key=lambda item: -item[1].price)
        self._offered = tuple(o for name, o in self.by_id.items() if name in offered)
        self._pricings: tuple[Pricing, ...] = ()

    def pricing(self, now: Millis) -> Pricing:
        """Reservation prices at what is on sale at a time."""
        buyable = tuple(offering for offering in self._offered if purchasable(offering, now))
        for known in self._pricings:
            if known.buyable == buyable:
                return known
        found = Pricing(self.offerings, buyable)
        self._pricings = (found, *self._pricings[: _KEPT - 1])
        return found


class _Markets:
    """The last few markets."""

    def __init__(self) -> None:
        self._last: tuple[Market, ...] = ()

    def of(self, catalog: Catalog, bought: Mapping[OfferingId, Offering]) -> Market:
        last = self._last
        for known in last:
            if known.catalog == catalog and known.unlisted == _beyond(known.listed, bought):
                return known
        listed = {offering.id for offering in catalog}
        found = Market(catalog, _beyond(listed, bought))
        self._last = (found, *last[: _KEPT - 1])
        return found


_MARKETS = _Markets()


def market(catalog: Catalog, bought: Mapping[OfferingId, Offering]) -> Market:
    """The market of a catalog; that of an equal one where there was one of late.

    Args:
        catalog: What is offered.
        bought: What live instances were bought as.
    """
    return _MARKETS.of(catalog, bought)


def _beyond(
    listed: Set[OfferingId], bought: Mapping[OfferingId, Offering]
) -> dict[OfferingId, Offering]:
    """What was bought and is no longer in the catalog."""
    return {name: offering for name, offering in bought.items() if name not in listed}
