"""The tenants of a trace, as the control loop has them."""

from __future__ import annotations

from eva_master.model.tenants.quotas import Tenancy
from eva_master.model.trace import Trace


def tenancy_of(trace: Trace) -> Tenancy:
    """Limits of a trace's tenants: the servers that they brought."""
    return Tenancy({tenant.name: tenant.quota for tenant in trace.tenants})
