"""Quotas and budgets of tenants, applied to the rounds of a partition."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from eva_master.control.limits import held_back, units
from eva_master.control.measure import ledger
from eva_master.control.planning import tenants
from eva_master.control.rounds.shared_limits import NOTHING_SHARED, SharedLimitsStage
from eva_master.control.state.records import Records
from eva_master.model.fleet.partitions import Partition
from eva_master.model.ids import MILLION, Family, Millis, RunId
from eva_master.model.planning.plan import Assign, Duplicate, Plan, left, pooled
from eva_master.model.planning.quotas import Tenancy
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing import quotas
from eva_master.packing.quotas import Admitted, Share


class TenantLimits:
    """Quotas and budgets of tenants, where there are any.

    A policy that lends applies quotas itself. Budgets hold under every policy.

    Args:
        state: Records with the present use of tenants.
        tenancy: Quotas and budgets of tenants.
        partition: The partition of the rounds.
    """

    def __init__(self, state: Records, tenancy: Tenancy, partition: Partition) -> None:
        self._state = state
        self._quotas = tenancy.quotas if partition.name not in tenancy.lending else {}
        self._budgets = tenancy.budgets

    def admitted(
        self,
        seen: Snapshot,
        before: Collection[RunId],
        stage: SharedLimitsStage = NOTHING_SHARED,
    ) -> Admitted | None:
        """A snapshot for the policy without the tasks that wait beyond their tenant's quota.

        Args:
            seen: The partition.
            before: Task runs that waited for quotas in the last plan.
            stage: The stage that keeps room for other partitions.

        Returns:
            `None` where there are no quotas.
        """
        if not self._quotas:
            return None
        passed_over = {run.id for run in seen.runs if run.held and run.id not in before}
        use = stage.used(tenants.use(self._state, self._quotas))
        return quotas.admitted(seen, use, passed_over)

    def within(
        self, plan: Plan, present: Snapshot, now: Millis, stage: SharedLimitsStage
    ) -> tuple[Plan, bool]:
        """The part of a plan within the quotas and budgets of tenants.

        Args:
            plan: The plan, with the extra runs and forks that begin.
            present: The partition as it is, with the sizes of the plan.
            now: The time.
            stage: The stage that keeps room for other partitions.

        Returns:
            The part, and whether a month's budget cut anything.
        """
        if self._quotas:
            use = stage.used(tenants.use(self._state, self._quotas))
            plan = quotas.within(plan, present, use)
        if not self._budgets or not plan.launches:
            return plan, False
        affordable = self._afforded(plan, present, now)
        return affordable, affordable is not plan

    def room(self, present: Snapshot) -> Callable[[str, Mapping[Family, int]], bool] | None:
        """Whether a tenant may have so many GPUs more, by base family; `None` without quotas.

        Args:
            present: The partition as it is.
        """
        if not self._quotas:
            return None
        use = tenants.use(self._state, self._quotas)
        shares = {
            tenant.name: Share(tenant.name, tenant.quota, use.get(tenant.name, {}))
            for tenant in present.tenants
        }

        def allows(tenant: str, gpus: Mapping[Family, int]) -> bool:
            share = shares.get(tenant)
            return share is None or share.allows(gpus)

        return allows

    def use(self) -> object:
        """A value that changes when tasks held back by a quota may begin."""
        return tenants.use(self._state, self._quotas)

    def _afforded(self, plan: Plan, present: Snapshot, now: Millis) -> Plan:
        """A plan without launches for tenants that have spent their budgets."""
        spent = {
            tenant: budget
            for tenant, budget in self._budgets.items()
            if ledger.month_of_tenant(self._state, tenant, now) >= budget
        }
        if not spent:
            return plan
        held: dict[RunId, str] = {}
        for unit in units(plan, present):
            budget = spent.get(unit.job.spec.tenant)
            if budget is not None and any(isinstance(entry.on, int) for entry in unit.entries):
                why = _spent(unit.job.spec.tenant, budget)
                held.update((entry.run, why) for entry in unit.entries)
        if not held:
            return plan
        entries = tuple(held_back(plan.entries, held, {view.id: view for view in present.runs}))
        used = {entry.on for entry in entries if isinstance(entry, Assign | Duplicate)}
        plan = replace(plan, entries=entries)
        return left(plan, {launch.key for launch in plan.launches} - used - {*pooled(plan)})


def _spent(tenant: str, budget: int) -> str:
    return (
        f"tenant {tenant} has spent its budget of this month, ${budget / MILLION:,.2f}"
        f" (tenants.{tenant}.budget.usd_per_month)"
    )
