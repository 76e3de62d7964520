"""Availability zones, and the gangs that belong into one of them.

Members of a gang talk all the time. Traffic between zones is slow, and each side pays for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from eva_master.model.catalog import NO_ZONE, Offering, Purchase
from eva_master.model.job import JobSpec, TaskSpec
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing.alone.fit import fit
from eva_master.packing.alone.room import Stock
from eva_master.packing.room import beside_limits, more_of
from eva_wire.values.bounds import JobKind

_NOT_SOLD_MS = 3_600_000
"""An offering that is refused for longer counts as not sold."""


def zones_of(offerings: Iterable[Offering]) -> frozenset[str]:
    """The zones in which some offerings are; an offering without a zone is in none."""
    return frozenset(offering.zone for offering in offerings) - {NO_ZONE}


def is_within(offering: Offering, zone: str) -> bool:
    """Whether an offering is in a zone; one without a zone is in each, and `NO_ZONE` means any."""
    return zone == NO_ZONE or offering.zone in (zone, NO_ZONE)


def same_zone(first: Offering, second: Offering) -> bool:
    """Whether two offerings may be in one zone."""
    return len(zones_of((first, second))) <= 1


def keeps_to_one_zone(spec: JobSpec) -> bool:
    """Whether all members of a job belong into one zone."""
    return spec.kind is JobKind.GANG and not spec.spans_zones


def zones_that_hold(tasks: Sequence[TaskSpec], now: Snapshot) -> list[str]:
    """The zones that sell, or have, room for some tasks together, whatever runs there now.

    Args:
        tasks: The members of a gang.
        now: The partition.
    """
    nodes = [view.offering for view in now.instances if view.offering.purchase is Purchase.OWNED]
    owned = Counter(offering.id for offering in nodes)
    taken = beside_limits(now.instances, now.draining)
    stocks = [
        Stock(offering, most=more_of(offering, {offering.id: -taken[offering.id]}))
        for offering in now.catalog
        if _sold(offering, now)
    ]
    stocks += [
        Stock(offering, idle=owned[offering.id], most=0)
        for offering in {offering.id: offering for offering in nodes}.values()
    ]
    return [
        zone
        for zone in sorted(zones_of(stock.offering for stock in stocks))
        if fit(tasks, [stock for stock in stocks if is_within(stock.offering, zone)]).seats
        is not None
    ]


def _sold(offering: Offering, now: Snapshot) -> bool:
    until = offering.unavailable_until
    sold = until is None or until - now.now_ms <= _NOT_SOLD_MS
    return sold and offering.purchase is not Purchase.OWNED
