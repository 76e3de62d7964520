"""Costs by owner, type, workload, label, day and so on, including what is not booked yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from eva_master.control.measure import ledger
from eva_master.control.measure.partition_sums import of_partitions
from eva_master.control.state.records import Records
from eva_master.model.accounting.splits import INSTANCES, REST, CostSplit, SplitKind
from eva_master.model.accounting.totals import NO_COSTS, CostTotals
from eva_master.model.fleet.partitions import UNDIVIDED, Partitions
from eva_master.model.records import Job
from eva_wire.values.ids import Exact, Millis


def costs(
    records: Records,
    partitions: Partitions,
    split: CostSplit,
    now: Millis,
    unbooked: Sequence[ledger.Running],
) -> Mapping[str, CostTotals]:
    """Costs as of `now` by name; nothing is booked. See `ReadModel.costs`.

    Args:
        records: The cluster.
        partitions: The division of the cluster.
        split: The property.
        now: The time.
        unbooked: Costs of live instances up to then that are not booked yet.
    """
    if split.kind is SplitKind.PARTITION:
        sums = of_partitions(records, records.totals.partitions, partitions, now)
        return {name or UNDIVIDED: CostTotals(of.charged, of.idle) for name, of in sums.items()}
    named = dict(_booked(records, split))
    for name, more in _running(records, split, now, unbooked):
        named[name] = named.get(name, NO_COSTS) + more
    named.pop(REST, None)
    # The rest of the whole is of names that are not kept apart.
    rest = _whole(records, split.kind, now, unbooked) - sum(named.values(), NO_COSTS)
    whose = INSTANCES if split.kind is SplitKind.PART else REST
    return named if rest == NO_COSTS else {**named, whose: rest}


def _whole(
    records: Records, kind: SplitKind, now: Millis, unbooked: Sequence[ledger.Running]
) -> CostTotals:
    """The costs that all names together have."""
    sums = ledger.cost(records, {}, now, unbooked)
    if kind is SplitKind.DAY:
        return CostTotals(sums.charged, sums.idle, sums.alone)
    if kind in (SplitKind.TYPE, SplitKind.PART):
        return CostTotals(sums.charged, sums.idle)
    return CostTotals(Exact(sums.charged - sums.idle), alone=sums.alone)


def _booked(records: Records, split: CostSplit) -> Mapping[str, CostTotals]:
    totals = records.totals
    match split.kind:
        case SplitKind.OWNER:
            return totals.owners
        case SplitKind.TYPE:
            return totals.types
        case SplitKind.WORKLOAD:
            return totals.workloads
        case SplitKind.DAY:
            return totals.days
        case SplitKind.PART:
            return totals.parts
        case SplitKind.LABEL:
            prefix = f"{split.key}="
            return {name: of for name, of in totals.labels.items() if name.startswith(prefix)}
        case SplitKind.TENANT:
            return {
                name: CostTotals(of.charged, alone=of.alone) for name, of in totals.tenants.items()
            }
        case _:
            return {
                name: CostTotals(of.charged, alone=of.alone)
                for name, of in records.job_accounts.items()
            }


def _running(
    records: Records, split: CostSplit, now: Millis, unbooked: Sequence[ledger.Running]
) -> Iterator[tuple[str, CostTotals]]:
    """Costs that are not booked yet, with their names; a name may come several times."""
    for account, accrual in unbooked:
        if not accrual.elapsed_ms:
            continue
        if split.kind is SplitKind.DAY:
            yield from accrual.costs.by_day(account.until_ms, now)
        elif split.kind is SplitKind.PART:
            yield from accrual.parts(records.instances[account.instance].offering)
        elif split.kind is SplitKind.TYPE:
            kind = records.instances[account.instance].offering.type.name
            yield kind, CostTotals(Exact(accrual.charged), Exact(accrual.idle))
        elif split.kind is SplitKind.WORKLOAD:
            for increment in accrual.jobs:
                yield from ledger.by_workload(records, account.instance, increment)
        else:
            for increment in accrual.jobs:
                name = _name(records.jobs[increment.job], split)
                yield name, CostTotals(increment.charged, alone=increment.alone)


def _name(job: Job, split: CostSplit) -> str:
    """The name under which a job counts; that of the rest if it has none."""
    match split.kind:
        case SplitKind.OWNER:
            return job.spec.owner
        case SplitKind.TENANT:
            return job.spec.tenant
        case SplitKind.LABEL:
            value = dict(job.spec.labels).get(split.key)
            return REST if value is None else f"{split.key}={value}"
        case _:
            return job.id
