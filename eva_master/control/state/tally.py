"""The running sums behind `Totals`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from eva_master.control.state.parts.cost_tally import (
    MOST_DAYS,
    CostTally,
    earliest,
    idle_longest_of_commonest_key,
)
from eva_master.control.state.parts.lending import Lending
from eva_master.control.state.parts.months import OwnerMonths
from eva_master.control.state.parts.partition_tally import PartitionTally
from eva_master.control.state.parts.tenant_tally import Stretch, TenantTally
from eva_master.model.accounting import pool_costs
from eva_master.model.accounting.pool_costs import FREE, PoolCost, Stood
from eva_master.model.accounting.totals import CostTotals, Totals
from eva_master.model.changes import Documents, InstanceAccount, JobAccount
from eva_master.model.planning.plan import Json
from eva_master.model.records import Instance, Job, TaskRun, untouched_state
from eva_wire.values.bounds import DEFAULT_TENANT
from eva_wire.values.ids import Exact
from eva_wire.values.states import JobState, RunState


class Tally:
    """Sums over every record that is added or replaced; forgotten records stay counted.

    Attributes:
        changed: Whether any sum has changed since the last call of `write`.
        tenants: The sums of each tenant, which have documents of their own.
        lending: Terms in force between tenants, which have a document of their own.
        partitions: The sums of each partition, which have documents of their own.
        types: Costs of instances by type, with documents of their own.
        owners: Costs of jobs by owner, with documents of their own.
        workloads: Costs of tasks by workload, with documents of their own; the ledger books them.
        labels: Costs of jobs by label, with documents of their own.
        owner_months: Charges of owners in a month, with documents of their own; the ledger books
            them.
        days: Costs by day, with documents of their own; the ledger books them.
        parts: Costs of volumes and of addresses, with documents of their own.
    """

    def __init__(self) -> None:
        self.changed = False
        self._documents = written = Documents()
        self.tenants = TenantTally(written)
        self.lending = Lending(written, self.tenants)
        self.partitions = PartitionTally(written)
        self.types = CostTally(written, "cost_by_type/")
        self.owners = CostTally(written, "cost_by_owner/")
        self.workloads = CostTally(written, "cost_by_workload/", rest=False)
        self.labels = CostTally(
            written, "cost_by_label/", leaves=idle_longest_of_commonest_key, rest=False
        )
        self.owner_months = OwnerMonths(written)
        self.days = CostTally(written, "cost_by_day/", MOST_DAYS, earliest, rest=False)
        self.parts = CostTally(written, "cost_by_part/", rest=False)
        self._charged = self._idle = self._alone = self._migrations = self._kept = 0
        self._pools: dict[str, PoolCost] = {}
        self._jobs: defaultdict[JobState, int] = defaultdict(int)
        self._runs: defaultdict[RunState, int] = defaultdict(int)

    def job(self, old: Job | None, new: Job, untouched: int) -> None:
        """Follow the new record of a job with a number of tasks that have no record."""
        self.partitions.job(old, new)
        if old is not None and old.history is new.history:
            return
        if old is not None and old.state is new.state:
            return
        self.changed = True
        self.tenants.job(new.spec.tenant, old, new)
        self._jobs[new.state] += 1
        self._runs[untouched_state(new)] += untouched
        if old is not None:
            self._jobs[old.state] -= 1
            self._runs[untouched_state(old)] -= untouched

    def run(self, old: TaskRun | None, new: TaskRun) -> None:
        """Follow the new record of a task run; `old` is `None` for a new extra run."""
        if old is None:
            self.changed = True
            self._runs[new.state] += 1
            return
        if old.history is new.history and old.moves == new.moves:
            return
        before, after = old.state, new.state
        self.changed = True
        self._migrations += new.moves - old.moves
        if before is not after:
            self._runs[after] += 1
            self._runs[before] -= 1

    def job_account(
        self,
        job: Job | None,
        old: JobAccount | None,
        new: JobAccount,
        stretch: Stretch | None = None,
    ) -> None:
        """Follow the new account of a job, which counts for its tenant and its owner.

        Args:
            job: The job, if it is known.
            old: Its account before.
            new: Its account now.
            stretch: The stretch of time for which it owes more, which counts in the month of its
                tenant and its owner; `None` if it counts in no month.
        """
        self.changed = True
        charged, alone = new.charged, new.alone
        if old is not None:
            charged, alone = Exact(charged - old.charged), Exact(alone - old.alone)
        self._alone += alone
        costs = CostTotals(charged, alone=alone)
        if job is None:
            self.tenants.account(DEFAULT_TENANT, charged, alone)
            self.owners.add("", costs)
            return
        self.tenants.account(job.spec.tenant, charged, alone, stretch)
        self.owners.add(job.spec.owner, costs)
        if charged and stretch is not None:
            self.owner_months.spend(job.spec.owner, charged, *stretch)
        for key, value in job.spec.labels:
            self.labels.add(f"{key}={value}", costs)

    def instance_account(
        self, instance: Instance, old: InstanceAccount | None, new: InstanceAccount
    ) -> None:
        """Follow the new account of an instance, which counts for its partition and its type."""
        self.changed = True
        self.partitions.account(instance.partition, old, new)
        charged, idle = new.charged, new.idle
        if old is not None:
            charged, idle = Exact(charged - old.charged), Exact(idle - old.idle)
        self.types.account(instance.offering.type.name, charged, idle)
        self._charged += charged
        self._idle += idle
        if old is None or new.standing is not old.standing:
            self._stood(() if old is None else old.standing, new.standing)

    def book_parts(self, costs: Iterable[tuple[str, CostTotals]]) -> None:
        """Book costs of what is attached to instances, which are parts of these instances' own."""
        for part, more in costs:
            self.changed = True
            self.parts.add(part, more)

    def count_kept(self, charged: int) -> None:
        """Count what an instance cost while it was empty and stayed for tasks that waited."""
        self.changed = self.changed or charged > 0
        self._kept += charged

    def _stood(self, before: Stood, after: Stood) -> None:
        for pool, cost in after:
            self._pools[pool] = self._pools.get(pool, FREE) + cost
        for pool, cost in before:
            self._pools[pool] -= cost

    def totals(self) -> Totals:
        """The sums as they are now."""
        return Totals(
            charged=Exact(self._charged),
            idle=Exact(self._idle),
            alone=Exact(self._alone),
            migrations=self._migrations,
            jobs={state: count for state, count in self._jobs.items() if count},
            runs={state: count for state, count in self._runs.items() if count},
            tenants=self.tenants.totals(),
            pools=dict(sorted(self._pools.items())),
            partitions=self.partitions.totals(),
            types=self.types.totals(),
            owners=self.owners.totals(),
            workloads=self.workloads.totals(),
            labels=self.labels.totals(),
            days=self.days.totals(),
            parts=self.parts.totals(),
            owner_months=self.owner_months.totals(),
            kept=Exact(self._kept),
            ended=self.lending.ended,
        )

    def restore(self, written: Mapping[str, Json], documents: Mapping[str, Json]) -> None:
        """Take the sums as the journal has them, see `to_json` and `write`."""
        for name in ("charged", "idle", "alone", "migrations"):
            setattr(self, f"_{name}", int(str(written[name])))
        self._kept = int(str(written.get("kept", 0)))
        self._pools = pool_costs.read(written.get("pools", {}))
        jobs, runs = written["jobs"], written["runs"]
        assert isinstance(jobs, dict)
        assert isinstance(runs, dict)
        self._jobs = defaultdict(int, {JobState(k): int(str(v)) for k, v in jobs.items()})
        self._runs = defaultdict(int, {RunState(k): int(str(v)) for k, v in runs.items()})
        whole = self.totals()
        self.tenants.restore(documents, whole)
        self.lending.restore(documents)
        self.partitions.restore(documents, whole)
        self.types.restore(documents, CostTotals(whole.charged, whole.idle))
        used = Exact(whole.charged - whole.idle)
        for sums in (self.owners, self.workloads, self.labels):
            sums.restore(documents, CostTotals(used, alone=whole.alone))
        self.owner_months.restore(documents)
        for sums in (self.days, self.parts):
            sums.restore(documents, CostTotals(whole.charged, whole.idle, whole.alone))

    def write(self, documents: Documents) -> None:
        """Hand over the documents of the sums that changed since the last call."""
        if self.changed:
            self.changed = False
            documents["totals"] = self.to_json
        documents.update(self._documents)
        self._documents.clear()

    def to_json(self) -> dict[str, Json]:
        """The sums as a document; exact amounts are decimal strings, as in the tables."""
        totals = self.totals()
        pools = pool_costs.written(totals.pools)
        return {
            **({"pools": pools} if pools else {}),
            "charged": str(totals.charged),
            "idle": str(totals.idle),
            "alone": str(totals.alone),
            "kept": str(totals.kept),
            "migrations": totals.migrations,
            "jobs": {state.value: count for state, count in totals.jobs.items()},
            "runs": {state.value: count for state, count in totals.runs.items()},
        }
