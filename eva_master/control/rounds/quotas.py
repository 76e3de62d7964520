"""What tenants may have, applied to the rounds of a partition."""

from __future__ import annotations

from dataclasses import replace

from eva_master.control.alarms import Alarm, Wake
from eva_master.control.context import Context
from eva_master.control.limits import held_back, units
from eva_master.control.planning import tenants
from eva_master.model.fleet.partitions import Partition, month_of
from eva_master.model.ids import MILLION, RunId
from eva_master.model.planning.plan import Assign, Duplicate, Plan, left, pooled
from eva_master.model.planning.snapshot import Snapshot
from eva_master.packing import quotas
from eva_master.packing.quotas import Admitted


class TenantLimits:
    """Quotas and budgets of tenants, where there are any.

    Quotas are the policy's own affair if it lends. Budgets hold under every policy.

    Args:
        context: Of the control loop.
        partition: Whose rounds these are.
    """

    def __init__(self, context: Context, partition: Partition) -> None:
        self._context = context
        tenancy = context.settings.tenancy
        self._quotas = tenancy.quotas if partition.name not in tenancy.lending else {}
        self._budgets = tenancy.budgets
        self._admitted: Admitted | None = None

    def admitted(self, seen: Snapshot) -> Snapshot:
        """What the policy gets to see: without those who wait beyond their tenant's quota."""
        if not self._quotas:
            return seen
        before = self._admitted.holds if self._admitted is not None else {}
        passed_over = {run.id for run in seen.runs if run.held and run.id not in before}
        use = tenants.use(self._context.state, self._quotas)
        self._admitted = quotas.admitted(seen, use, passed_over)
        return self._admitted.snapshot

    def completed(self, plan: Plan) -> Plan:
        """A plan with why those wait whom the policy did not see."""
        return plan if self._admitted is None else self._admitted.completed(plan)

    def within(self, plan: Plan, now: Snapshot) -> Plan:
        """The part of a plan that tenants may have.

        Args:
            plan: With the extra runs and forks that begin.
            now: The partition as it is, with the sizes of the plan.
        """
        if self._quotas:
            plan = quotas.within(plan, now, tenants.use(self._context.state, self._quotas))
        if self._budgets and plan.launches:
            plan = self._afforded(plan, now)
        return plan

    @property
    def standing(self) -> object:
        """What decides whether those who were kept back by a quota may begin."""
        if self._admitted is None or not self._admitted.holds:
            return None
        return tenants.use(self._context.state, self._quotas)

    def _afforded(self, plan: Plan, now: Snapshot) -> Plan:
        """A plan in which nothing is launched for tenants that have spent their budgets."""
        spent = {
            tenant: budget
            for tenant, budget in self._budgets.items()
            if tenants.spent_this_month(self._context.state, tenant, self._context.now) >= budget
        }
        if not spent:
            return plan
        held: dict[RunId, str] = {}
        for unit in units(plan, now):
            budget = spent.get(unit.job.tenant)
            if budget is not None and any(isinstance(entry.on, int) for entry in unit.entries):
                why = _spent(unit.job.tenant, budget)
                held.update((entry.run, why) for entry in unit.entries)
        if not held:
            return plan
        _, after = month_of(self._context.now)
        self._context.alarms.at(after, Alarm(Wake.AVAILABILITY))
        entries = tuple(held_back(plan.entries, held, {view.id: view for view in now.runs}))
        used = {entry.on for entry in entries if isinstance(entry, Assign | Duplicate)}
        plan = replace(plan, entries=entries)
        return left(plan, {it.key for it in plan.launches} - used - {*pooled(plan)})


def _spent(tenant: str, budget: int) -> str:
    return (
        f"tenant {tenant} has spent its budget of this month, ${budget / MILLION:,.2f}"
        f" (tenants.{tenant}.budget.usd_per_month)"
    )
