"""The tenants of a trace, as the control loop has them."""

from __future__ import annotations

from eva_master.model.planning.quotas import Tenancy
from eva_master.model.trace import Trace


def tenancy_of(trace: Trace) -> Tenancy:
    """What the tenants of a trace may have: what they brought."""
    return Tenancy({tenant.name: tenant.quota for tenant in trace.tenants})
