"""The difference between two catalogs, in a sentence for users. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence

from eva_master.model.catalog import Catalog, Purchase
from eva_wire.values.ids import MILLION

_NAMED = 5
"""Types that are named of each kind of change; others are counted."""


def in_words(old: Catalog, new: Catalog) -> str:
    """Say which types are new, gone, sold elsewhere or at other prices; empty if none is.

    Prices on the spot market change all the time, and are not told.
    """
    before, after = _by_type(old), _by_type(new)
    both = [name for name in before if name in after]
    costs = {name: (min(before[name].values()), min(after[name].values())) for name in both}
    parts = {
        "new": [name for name in after if name not in before],
        "gone": [name for name in before if name not in after],
        "at other prices": [
            f"{name} ({_usd(was)} -> {_usd(now)})"
            for name, (was, now) in costs.items()
            if was != now
        ],
        "in other zones": [name for name in both if before[name].keys() != after[name].keys()],
    }
    said = [f"{kind}: {_some(names)}" for kind, names in parts.items() if names]
    return f"what is on sale has changed; {'; '.join(said)}" if said else ""


def _by_type(catalog: Catalog) -> dict[str, dict[str, int]]:
    """Prices on demand of instances alone, by type and zone."""
    prices: dict[str, dict[str, int]] = {}
    for offering in catalog:
        if offering.purchase is Purchase.ON_DEMAND:
            prices.setdefault(offering.type.name, {})[offering.zone] = offering.machine_price
    return prices


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _usd(price: int) -> str:
    return f"${price / MILLION:,.4f}/h"
