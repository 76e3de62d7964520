"""Owned nodes as policies see them.

To a policy a fixed cluster is a cloud whose offerings are limited: the catalog offers as many nodes
of a type as there are to be given tasks, so every one of them exists and none can be launched.
"""

from __future__ import annotations

from collections.abc import Mapping

from eva_master.model.catalog import Catalog, Offering, Purchase
from eva_master.model.values import replace
from eva_master.packing.valuation.job_valuation import counted_price
from eva_wire.values.ids import OfferingId

Counts = tuple[tuple[OfferingId, int], ...]


def shown(offering: Offering) -> Offering:
    """An offering at the price that policies go by."""
    if offering.purchase is not Purchase.OWNED or offering.price == counted_price(offering):
        return offering
    return replace(offering, price=counted_price(offering))


def counted(catalog: Catalog, counts: Mapping[OfferingId, int]) -> Counts:
    """Number of nodes of each owned offering of a catalog that may be given tasks.

    Args:
        catalog: The catalog.
        counts: Number of instances that may be given tasks, by offering.
    """
    owned = (offering.id for offering in catalog if offering.purchase is Purchase.OWNED)
    return tuple((name, counts.get(name, 0)) for name in owned)


def limited(catalog: Catalog, counts: Counts) -> Catalog:
    """The catalog with owned offerings limited to the existing nodes."""
    if not counts:
        return catalog
    limits = dict(counts)
    return tuple(
        replace(offering, limit=limits[offering.id]) if offering.id in limits else offering
        for offering in catalog
    )
