"""Sizes and costs of partitions, including what is not booked yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from eva_master.control.measure import ledger
from eva_master.control.state.records import Records
from eva_master.model.accounting.totals import PartitionTotals
from eva_master.model.arithmetic.calendar import month_of
from eva_master.model.fleet.partitions import Partitions
from eva_wire.values.ids import Exact, Millis


def of_partitions(
    records: Records, booked: Mapping[str, PartitionTotals], partitions: Partitions, now: Millis
) -> Mapping[str, PartitionTotals]:
    """The sums of each partition as of `now`, by name; nothing is booked.

    Args:
        records: The cluster.
        booked: The booked sums, by the name on record.
        partitions: The division of the cluster.
        now: The time.
    """
    month, _ = month_of(now)
    default = partitions.default.name
    sums: dict[str, PartitionTotals] = {
        partition.name: PartitionTotals() for partition in partitions.all
    }
    for name, before in booked.items():
        recent = before if before.month_ms == month else replace(before, month_charged=Exact(0))
        so_far = sums.get(name or default, PartitionTotals())
        sums[name or default] = _sum(so_far, replace(recent, month_ms=month))
    for instance in map(records.instances.__getitem__, records.live):
        account = records.instance_accounts.get(instance.id)
        if account is None or account.closed or account.until_ms >= now:
            continue
        amount = ledger.charge(instance, account.until_ms, now)
        recent_ms = max(account.until_ms, month)
        running = PartitionTotals(
            charged=Exact(amount),
            idle=Exact(0 if records.occupants(instance.id) else amount),
            month_charged=Exact(
                ledger.charge(instance, recent_ms, now) if instance.partition else 0
            ),
        )
        name = instance.partition or default
        sums[name] = _sum(sums.get(name, PartitionTotals()), running)
    return {name: replace(total, month_ms=month) for name, total in sums.items()}


def _sum(one: PartitionTotals, other: PartitionTotals) -> PartitionTotals:
    return PartitionTotals(
        charged=Exact(one.charged + other.charged),
        idle=Exact(one.idle + other.idle),
        arrivals=one.arrivals + other.arrivals,
        completions=one.completions + other.completions,
        month_ms=one.month_ms,
        month_charged=Exact(one.month_charged + other.month_charged),
        jobs=one.jobs + other.jobs,
        tasks=one.tasks + other.tasks,
    )
