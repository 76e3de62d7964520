"""Costs by type of instance and by owner of jobs, including what is not booked yet."""

from __future__ import annotations

from collections.abc import Mapping

from eva_master.control.measure import ledger
from eva_master.control.state.records import Records
from eva_master.model.accounting.totals import CostTotals
from eva_wire.values.ids import Exact, Millis

_NONE = CostTotals()


def of_types(
    records: Records, booked: Mapping[str, CostTotals], now: Millis
) -> Mapping[str, CostTotals]:
    """The costs of the instances of each type as of `now`, by name; nothing is booked.

    Args:
        records: The cluster.
        booked: The booked costs.
        now: The time.
    """
    sums = dict(booked)
    for name in records.live:
        before = records.instance_accounts.get(name)
        after = ledger.instance_account(records, name, now)
        if before is None or after is None:
            continue
        more = CostTotals(Exact(after.charged - before.charged), Exact(after.idle - before.idle))
        kind = records.instances[name].offering.type.name
        sums[kind] = sums.get(kind, _NONE) + more
    return sums


def of_owners(
    records: Records, booked: Mapping[str, CostTotals], now: Millis
) -> Mapping[str, CostTotals]:
    """The costs of the jobs of each owner as of `now`, by name; nothing is booked.

    Args:
        records: The cluster.
        booked: The booked costs.
        now: The time.
    """
    sums = dict(booked)
    running = ledger.running_of(records, now, lambda job: job.spec.owner)
    for owner, increment in running.items():
        more = CostTotals(increment.charged, alone=increment.alone)
        sums[owner] = sums.get(owner, _NONE) + more
    return sums
