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
from eva_master.control.state.parts.tenant_tally import TenantTally
from eva_master.model.accounting import pool_costs
from eva_master.model.accounting.pool_costs import FREE, PoolCost, Stood
from eva_master.model.accounting.totals import CostTotals, Totals
from eva_master.model.changes import Deferred, InstanceAccount, JobAccount
from eva_master.model.planning.plan import Json
from eva_master.model.records import Instance, Job, TaskRun, untouched_state
from eva_wire.values.bounds import DEFAULT_TENANT
from eva_wire.values.ids import Exact
from eva_wire.values.states import COPY_STATES, JOB_STATES, JobState, RunState


class Tally:
    """Sums over every record that is added or replaced; forgotten records stay counted.

    Attributes:
        changed: Whether any sum has changed since the last call of `written`.
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
        self.tenants = TenantTally()
        self.lending = Lending(self.tenants)
        self.partitions = PartitionTally()
        self.types, self.owners = CostTally("cost_by_type/"), CostTally("cost_by_owner/")
        self.workloads = CostTally("cost_by_workload/", rest=False)
        self.labels = CostTally("cost_by_label/", leaves=idle_longest_of_commonest_key, rest=False)
        self.owner_months = OwnerMonths()
        self.days = CostTally("cost_by_day/", MOST_DAYS, earliest, rest=False)
        self.parts = CostTally("cost_by_part/", rest=False)
        self._charged = self._idle = self._alone = self._migrations = self._kept = 0
        self._pools: dict[str, PoolCost] = {}
        self._jobs: defaultdict[JobState, int] = defaultdict(int)
        self._runs: defaultdict[RunState, int] = defaultdict(int)

    def job(self, old: Job | None, new: Job, untouched: int) -> None:
        """Follow the new record of a job with a number of tasks that have no record."""
        self.partitions.job(old, new)
        if old is not None and old.history is new.history:
            return
        before, after = None if old is None else old.history[-1][0], new.history[-1][0]
        if before == after:
            return
        self.changed = True
        self.tenants.job(new.spec.tenant, old, new)
        self._jobs[JOB_STATES[after]] += 1
        self._runs[untouched_state(new)] += untouched
        if old is not None and before is not None:
            self._jobs[JOB_STATES[before]] -= 1
            self._runs[untouched_state(old)] -= untouched

    def run(self, old: TaskRun | None, new: TaskRun) -> None:
        """Follow the new record of a task run; `old` is `None` for a new extra run."""
        if old is None:
            self.changed = True
            self._runs[new.state] += 1
            return
        if old.history is new.history and old.moves == new.moves:
            return
        before, after = old.history[-1][0], new.history[-1][0]
        self.changed = True
        self._migrations += new.moves - old.moves
        if before != after:
            self._runs[COPY_STATES[after]] += 1
            self._runs[COPY_STATES[before]] -= 1

    def job_account(self, job: Job | None, old: JobAccount | None, new: JobAccount) -> None:
        """Follow the new account of a job, which counts for its tenant and its owner."""
        self.changed = True
        tenant, owner = (DEFAULT_TENANT, "") if job is None else (job.spec.tenant, job.spec.owner)
        charged, alone = (0, 0) if old is None else (old.charged, old.alone)
        self.tenants.account(tenant, new.charged - charged, new.alone - alone)
        self.owners.account(owner, new.charged - charged, alone=new.alone - alone)
        for key, value in () if job is None else job.spec.labels:
            self.labels.account(f"{key}={value}", new.charged - charged, alone=new.alone - alone)
        self._alone += new.alone - alone

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
        """Take the sums as the journal has them, see `to_json` and `take_documents`."""
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

    def take_documents(self) -> dict[str, Json | Deferred]:
        """The documents of the sums that changed since the last call, by name."""
        documents: dict[str, Json | Deferred] = {}
        if self.changed:
            self.changed = False
            documents["totals"] = self.to_json
            for sums in (
                self.types,
                self.owners,
                self.workloads,
                self.labels,
                self.days,
                self.parts,
            ):
                documents.update(sums.take_documents())
        documents.update(self.tenants.take_documents())
        documents.update(self.owner_months.take_documents())
        documents.update(self.lending.take_documents())
        documents.update(self.partitions.take_documents())
        return documents

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
