"""Tenants as policies see them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from eva_master.control.measure import ledger
from eva_master.control.planning.owned import limited
from eva_master.control.state.records import PlanningRecords, Records
from eva_master.model.accounting.totals import TenantTotals
from eva_master.model.catalog import Catalog, Purchase, base_family
from eva_master.model.fleet.partitions import month_of
from eva_master.model.ids import Family, Millis, micro_usd
from eva_master.model.planning.quotas import Tenancy, TenantLimits, fleet_of, scaled
from eva_master.model.planning.tenancy import NOTHING_YET, Quota, Standing, TenantView
from eva_master.model.records import Job
from eva_master.packing.quotas import Share, Use, gpu_needs


def views(state: PlanningRecords, tenancy: Tenancy, catalog: Catalog) -> tuple[TenantView, ...]:
    """The tenants that have quotas, by name.

    Args:
        state: Has what they have got so far.
        tenancy: What they may have.
        catalog: With owned offerings limited to the nodes that there are.
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
            tuple(it for it in ended if it.tenant == name),
        )
        for name in sorted(quotas)
    )


def _standing(sums: TenantTotals | None) -> Standing:
    """What a tenant has got so far."""
    if sums is None:
        return NOTHING_YET
    return Standing(sums.value, sums.paid, sums.earned, sums.received, sums.given)


def present(state: Records, tenancy: Tenancy) -> Mapping[str, Quota]:
    """The quotas as they are now."""
    offerings = (state.instances[name].offering.id for name in state.live if state.can_place(name))
    there = Counter(offerings)
    owned = tuple((it.id, there[it.id]) for it in state.catalog if it.purchase is Purchase.OWNED)
    return scaled(tenancy.quotas, fleet_of(limited(state.catalog, owned)))


def share(state: Records, tenancy: Tenancy, tenant: str) -> Share:
    """What a tenant with a quota has of it."""
    quota = present(state, tenancy)[tenant]
    return Share(tenant, quota, use(state, (tenant,))[tenant])


def within_quota(state: Records, tenancy: Tenancy, partition: str, job: Job) -> bool:
    """Whether a job's tenant may have one more of its tasks, on whatever family room is found."""
    tenant = job.spec.tenant
    if tenant not in tenancy.quotas or partition in tenancy.lending:
        return True
    needs = [gpu_needs(task) for task in state.kinds(job.id)]
    if not any(needs):
        return True
    left = share(state, tenancy, tenant)
    return all(left.allows({family: gpus}) for it in needs for family, gpus in it.items())


def use(state: Records, tenants: Collection[str]) -> Use:
    """The GPUs that tasks of some tenants have, or are about to have.

    One that moves to another family has some of both until it has stopped.
    """
    found: dict[str, Counter[Family]] = {name: Counter() for name in tenants}
    for job in state.active:
        tenant = state.jobs[job].spec.tenant
        if tenant not in found:
            continue
        for run in state.in_hand(job):
            task = state.task(run)
            taken: dict[Family, int] = {}
            for place in {run.instance, run.target} - {None}:
                assert place is not None
                family = state.instances[place].offering.type.family
                if (need := task.demand_on(family)) is not None and need.gpus:
                    taken[base_family(family)] = need.gpus
            found[tenant].update(taken)
    return found


def spent_this_month(state: Records, tenant: str, now: Millis) -> int:
    """What a tenant's jobs are charged in this calendar month, UTC, in micro-dollars.

    What is not booked yet is counted.
    """
    month, _ = month_of(now)
    sums = state.totals.tenants.get(tenant, TenantTotals())
    exact: int = sums.month_charged if sums.month_ms == month else 0
    running = ledger.running_of(state, now, lambda job: job.spec.tenant, since=month)
    if (more := running.get(tenant)) is not None:
        exact += more.charged
    return micro_usd(exact)


def limits(state: Records, tenancy: Tenancy, now: Millis) -> Mapping[str, TenantLimits]:
    """What tenants with quotas or budgets may have, and have."""
    if not tenancy.limited:
        return {}
    names = {*tenancy.quotas, *tenancy.budgets}
    quotas, used = present(state, tenancy), use(state, names)
    return {
        name: TenantLimits(
            quota=tenancy.quotas.get(name),
            quota_now=quotas.get(name, ()),
            use=tuple(sorted(used[name].items())),
            budget=tenancy.budgets.get(name),
            month=spent_this_month(state, name, now) if name in tenancy.budgets else 0,
        )
        for name in names
    }
