"""How much of its quota each tenant uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from eva_master.control.measure import ledger
from eva_master.control.planning.owned import limited
from eva_master.control.state.records import Records
from eva_master.model.catalog import Purchase, base_family
from eva_master.model.fleet.partitions import Partition
from eva_master.model.records import Job
from eva_master.model.tenants.quotas import Tenancy, TenantLimits, fleet_of, scaled
from eva_master.model.tenants.tenancy import Quota
from eva_master.packing.quotas import QuotaUse, Use, gpu_needs
from eva_wire.values.ids import Family, Millis


def present(state: Records, tenancy: Tenancy) -> Mapping[str, Quota]:
    """The quotas that are in force."""
    offerings = (state.instances[name].offering.id for name in state.live if state.can_place(name))
    counts = Counter(offerings)
    owned = tuple(
        (offering.id, counts[offering.id])
        for offering in state.catalog
        if offering.purchase is Purchase.OWNED
    )
    return scaled(tenancy.quotas, fleet_of(limited(state.catalog, owned)))


def share(state: Records, tenancy: Tenancy, tenant: str) -> QuotaUse:
    """Use of a tenant's quota."""
    quota = present(state, tenancy)[tenant]
    return QuotaUse(tenant, quota, use(state, (tenant,))[tenant])


def within_quota(state: Records, tenancy: Tenancy, partition: Partition, job: Job) -> bool:
    """Whether a job's tenant may have one more of its tasks, on whatever family room is found."""
    tenant = job.spec.tenant
    if tenant not in tenancy.enforced(partition):
        return True
    needs = [gpu_needs(task) for task in state.tasks.kinds(job.id)]
    if not any(needs):
        return True
    own_share = share(state, tenancy, tenant)
    return all(own_share.allows({family: gpus}) for need in needs for family, gpus in need.items())


def use(state: Records, tenants: Collection[str]) -> Use:
    """The GPUs that tasks of some tenants have, or are about to have.

    A task run that moves to another family counts on both until it has stopped.
    """
    gpus: dict[str, Counter[Family]] = {name: Counter() for name in tenants}
    for job in state.active:
        tenant = state.jobs[job].spec.tenant
        if tenant not in gpus:
            continue
        for run in state.in_hand(job):
            task = state.task(run)
            taken: dict[Family, int] = {}
            for place in {run.instance, run.target} - {None}:
                assert place is not None
                family = state.instances[place].offering.type.family
                if (need := task.demand_on(family)) is not None and need.gpus:
                    taken[base_family(family)] = need.gpus
            gpus[tenant].update(taken)
    return gpus


def limits(state: Records, tenancy: Tenancy, now: Millis) -> Mapping[str, TenantLimits]:
    """Limits of tenants with quotas or budgets, and their use."""
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
            month=ledger.month_of_tenant(state, name, now) if name in tenancy.budgets else 0,
        )
        for name in names
    }
