"""Quotas and budgets of tenants, applied to the rounds of a partition."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from eva_master.control.measure import ledger
from eva_master.control.planning import quota_use
from eva_master.control.rounds.rules import caps
from eva_master.control.rounds.rules.shared_limits import NOTHING_SHARED, PartitionShare
from eva_master.control.state.records import Records
from eva_master.model.fleet.partitions import Partition
from eva_master.model.planning.snapshot import Snapshot
from eva_master.model.tenants.quotas import Tenancy
from eva_master.packing import quotas
from eva_master.packing.plan_effect import PlanEffect, Unit
from eva_master.packing.quotas import QuotaUse, QuotaView
from eva_wire.values.ids import MILLION, Family, Millis, RunId


class TenantCaps:
    """Quotas and budgets of tenants, where there are any.

    Some policies apply quotas themselves. Budgets hold under every policy.

    Args:
        state: Records with the present use of tenants.
        tenancy: Quotas and budgets of tenants.
        partition: The partition of the rounds.
    """

    def __init__(self, state: Records, tenancy: Tenancy, partition: Partition) -> None:
        self._state = state
        self._quotas = tenancy.enforced(partition)
        self._budgets = tenancy.budgets

    def admitted(
        self,
        seen: Snapshot,
        before: Collection[RunId],
        share: PartitionShare = NOTHING_SHARED,
    ) -> QuotaView | None:
        """A snapshot for the policy without the tasks that wait beyond their tenant's quota.

        Args:
            seen: The partition.
            before: Task runs that waited for quotas in the last plan.
            share: Share of the partition of limits that others share.

        Returns:
            `None` where there are no quotas.
        """
        if not self._quotas:
            return None
        passed_over = {run.id for run in seen.runs if run.held and run.id not in before}
        use = share.used(quota_use.use(self._state, self._quotas))
        return quotas.admitted(seen, use, passed_over)

    def within(
        self, effect: PlanEffect, now: Millis, share: PartitionShare
    ) -> tuple[PlanEffect, bool]:
        """The part of a plan within the quotas and budgets of tenants.

        Args:
            effect: The plan, with the extra runs that begin.
            now: The time.
            share: Share of the partition of limits that others share.

        Returns:
            The part, and whether a month's budget cut anything.
        """
        if self._quotas:
            use = share.used(quota_use.use(self._state, self._quotas))
            effect = quotas.within(effect, use)
        if not self._budgets or not effect.plan.launches:
            return effect, False
        spent = {
            tenant: budget
            for tenant, budget in self._budgets.items()
            if ledger.month_of_tenant(self._state, tenant, now) >= budget
        }
        affordable = caps.within(effect, _SpentBudgets(spent)) if spent else effect
        return affordable, affordable is not effect

    def room(self, present: Snapshot) -> Callable[[str, Mapping[Family, int]], bool] | None:
        """Whether a tenant may have so many GPUs more, by base family; `None` without quotas.

        Args:
            present: The partition as it is.
        """
        if not self._quotas:
            return None
        use = quota_use.use(self._state, self._quotas)
        shares = {
            tenant.name: QuotaUse(tenant.name, tenant.quota, use.get(tenant.name, {}))
            for tenant in present.tenants
        }

        def allows(tenant: str, gpus: Mapping[Family, int]) -> bool:
            share = shares.get(tenant)
            return share is None or share.allows(gpus)

        return allows

    def use(self) -> object:
        """A value that changes when tasks held back by a quota may begin."""
        return quota_use.use(self._state, self._quotas)


@dataclass(frozen=True, slots=True)
class _SpentBudgets:
    """Tenants that have spent their budgets: nothing is launched for them.

    Attributes:
        budgets: Their budgets of a month, in micro-dollars.
    """

    budgets: Mapping[str, int]

    def refusal(self, unit: Unit) -> str:
        """The budget of the tenant of a unit for which instances are launched."""
        tenant = unit.job.spec.tenant
        if tenant not in self.budgets or not unit.bought:
            return ""
        return _spent(tenant, self.budgets[tenant])

    def take(self, unit: Unit) -> None:
        """Count nothing: a spent budget stays spent."""

    def too_many(self, _members: Sequence[int]) -> Collection[int]:
        """No members: pools belong to no tenant."""
        return ()


def _spent(tenant: str, budget: int) -> str:
    return (
        f"tenant {tenant} has spent its budget of this month, ${budget / MILLION:,.2f}"
        f" (tenants.{tenant}.budget.usd_per_month)"
    )
