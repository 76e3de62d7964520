"""Jobs that no tenant may run, or not this one: they would wait for ever."""

from __future__ import annotations

from eva_master.control.settings import Settings
from eva_master.model.job import JobSpec, different
from eva_master.model.tenants.quotas import gpus_in_words
from eva_master.model.tenants.tenancy import ANY_FAMILY, Quota
from eva_master.packing.quotas import QuotaUse, gpu_needs
from eva_wire.values.bounds import DEFAULT_TENANT, JobKind
from eva_wire.values.errors import EvaError, NotAuthorised, Unplaceable
from eva_wire.values.ids import Family


def refusal(settings: Settings, spec: JobSpec) -> EvaError | None:
    """Why a job is refused: its owner has no tenant, or the job is larger than the quota.

    Where a policy answers for quotas itself, a job may be larger than its own tenant's quota.

    Args:
        settings: With what tenants may have.
        spec: The job.
    """
    tenancy = settings.tenancy
    if not tenancy.limited:
        return None
    if spec.tenant == DEFAULT_TENANT and DEFAULT_TENANT not in tenancy.quotas:
        names = tenancy.known
        shown = ", ".join(names[:8]) + (f" and {len(names) - 8:,} more" if len(names) > 8 else "")
        return NotAuthorised(
            f"{spec.owner or 'this user'} belongs to no tenant; there are: {shown}",
            hint="have an operator name the user, or a pattern, among a tenant's owners (tenants)",
        )
    home = settings.partitions.home(spec.partition)
    quota = tenancy.enforced(home).get(spec.tenant)
    return None if quota is None else _too_large(spec, quota)


def _too_large(spec: JobSpec, quota: Quota) -> Unplaceable | None:
    """Why a gang, or a task, is larger than a quota; each kind of tasks is checked by itself."""
    share = QuotaUse(spec.tenant, quota, {})
    gang = spec.kind is JobKind.GANG
    run = spec.tasks[: spec.elastic.least]
    for task in different(run):
        needs = gpu_needs(task)
        if not needs or any(not need.gpus for _, need in task.demand):
            continue
        count = sum(member == task for member in run) if gang else 1
        room = {family: share.room(family) // each for family, each in needs.items()}
        if sum(room.values()) < count:
            return _refused(spec, needs, count, max(room.values()), quota)
    return None


def _refused(
    spec: JobSpec, needs: dict[Family, int], count: int, room: int, quota: Quota
) -> Unplaceable:
    gpus = " or ".join(f"{each:,} {family}" for family, each in sorted(needs.items()))
    what = f"a task of the job takes {gpus}"
    if count > 1:
        least = " at least" if spec.elastic.least is not None else ""
        what = f"the gang has {count:,} tasks{least} that run together and take {gpus} each"
    stated = ", ".join(
        f"{gpus_in_words(gpus, family)} of any family"
        if family == ANY_FAMILY
        else gpus_in_words(gpus, family)
        for family, gpus in quota
    )
    return Unplaceable(
        f"{what}, and the quota of tenant {spec.tenant} ({stated or 'no GPU'}) has room for"
        f" {room:,} of them when nothing else of it runs",
        hint="state fewer tasks, or less for each; see: eva tenants",
    )
