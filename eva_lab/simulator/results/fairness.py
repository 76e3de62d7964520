"""How fairly tenants share what a cluster is worth to them."""

from __future__ import annotations

from collections.abc import Mapping


def alphas_of(gains: Mapping[str, float], parts: Mapping[str, float]) -> dict[str, float]:
    """Each tenant's part of all gains over its part of the cluster; 1 is fair.

    Args:
        gains: Gain of each tenant, in dollars; tenants without a part count in the sum.
        parts: The part of the cluster that each brought, in 0..1; 0 if it brought nothing.

    Returns:
        By name, of the tenants with a part; nothing if there are no gains.
    """
    total = sum(gains.values())
    if not total:
        return {}
    return {name: gain / total / parts[name] for name, gain in gains.items() if parts.get(name)}
