"""Tenants as policies see them."""

from __future__ import annotations

from eva_master.control.state.records import PlanningRecords
from eva_master.model.accounting.totals import TenantTotals
from eva_master.model.catalog import Catalog
from eva_master.model.tenants.quotas import Tenancy, fleet_of, scaled
from eva_master.model.tenants.tenancy import NOTHING_YET, TenantBenefit, TenantView


def tenant_views(
    state: PlanningRecords, tenancy: Tenancy, catalog: Catalog
) -> tuple[TenantView, ...]:
    """The tenants that have quotas, by name.

    Args:
        state: The records, with their benefits so far.
        tenancy: Limits of tenants.
        catalog: The catalog, with owned offerings limited to existing nodes.
    """
    if not tenancy.quotas:
        return ()
    totals = state.totals
    sums, ended = totals.tenants, totals.ended
    quotas = scaled(tenancy.quotas, fleet_of(catalog))
    return tuple(
        TenantView(
            name,
            quotas[name],
            _standing(sums.get(name)),
            tuple(job for job in ended if job.tenant == name),
        )
        for name in sorted(quotas)
    )


def _standing(sums: TenantTotals | None) -> TenantBenefit:
    """Benefit of a tenant so far."""
    if sums is None:
        return NOTHING_YET
    return TenantBenefit(sums.value, sums.paid, sums.earned, sums.received, sums.given)
