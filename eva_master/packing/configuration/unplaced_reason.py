"""Why a task has no place, in words for its user."""

from __future__ import annotations

from eva_master.model.catalog import Catalog
from eva_master.packing.valuation.reservation_price import Demand, hosts
from eva_wire.values.ids import Millis, OfferingId

_REASONS_TOLD = 2
"""So many different reasons of the cloud's are passed on."""


def why_unplaced(demand: Demand, catalog: Catalog, now: Millis) -> str:
    """Explain why no instance can be launched for a task.

    Args:
        demand: The task's demand per family.
        catalog: Every offering.
        now: The time.

    Returns:
        The reason; empty if an offering without limit could be launched.
    """
    suitable = sorted((o for o in catalog if hosts(o, demand)), key=lambda o: o.id)
    if not suitable:
        needs = sorted({str(need) for _, need in demand})
        return f"no offering can host {' or '.join(needs) or 'the task on any family'}"
    on_sale = [offering for offering in suitable if offering.available(now)]
    if not on_sale:
        causes = sorted({offering.why_unavailable for offering in suitable} - {""})
        why = f" ({'; '.join(causes[:_REASONS_TOLD])})" if causes else ""
        return f"out of stock at present: {_names([offering.id for offering in suitable])}{why}"
    if any(offering.limit is None for offering in on_sale):
        return ""
    return f"limit of {_names([offering.id for offering in on_sale])} reached"


def _names(ids: list[OfferingId]) -> str:
    shown = ", ".join(ids[:3])
    return shown if len(ids) <= 3 else f"{shown} and {len(ids) - 3} more"
