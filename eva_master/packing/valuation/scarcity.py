"""Prices at which limited offerings are dearer by what others would pay for their room."""

from __future__ import annotations

from collections.abc import Mapping

from eva_master.model.catalog import Offering
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.values import replace
from eva_wire.values.ids import OfferingId, Price

Scarcity = Mapping[OfferingId, Price]
"""Surcharge on the price of an offering for its scarcity, in micro-dollars per hour."""


def raised(snapshot: Snapshot, scarcity: Scarcity) -> Snapshot:
    """The cluster at prices with scarcity; the same object if there is none."""
    if not scarcity:
        return snapshot

    def dearer(offering: Offering) -> Offering:
        more = scarcity.get(offering.id)
        return replace(offering, price=Price(offering.price + more)) if more else offering

    return replace(
        snapshot,
        catalog=tuple(map(dearer, snapshot.catalog)),
        instances=tuple(
            replace(view, offering=dearer(view.offering)) for view in snapshot.instances
        ),
    )
