"""Further launches allowed to a partition: by its number of instances and its budget."""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.control.measure import ledger
from eva_master.control.planning.parts import Sums
from eva_master.control.settings import NO_LIMIT, Limits
from eva_master.control.state.records import Records
from eva_master.model.accounting.per_hour import counted_per_hour
from eva_master.model.accounting.totals import PartitionTotals
from eva_master.model.fleet.partitions import Partition
from eva_master.model.planning.snapshot import UNLIMITED, Leeway
from eva_master.model.records import Instance
from eva_wire.values.ids import MILLION, Millis


@dataclass(frozen=True, slots=True)
class Allowance:
    """Present size and spending of a partition, against its limits.

    Attributes:
        partition: The partition.
        instances: Number of its instances, those about to go included.
        per_hour: Their prices together, in micro-dollars.
        spent: Cost of these and earlier instances in this month so far, in micro-dollars.
    """

    partition: Partition
    instances: int
    per_hour: int
    spent: int

    def refusal(self, launched: int, price: int) -> str:
        """Why no further launch is allowed, for the user; empty if it is.

        Args:
            launched: Number of launches in all.
            price: Their prices together, in micro-dollars per hour.
        """
        name, limits, budget = self.partition.name, self.partition.limits, self.partition.budget
        if limits.instances is not None and self.instances + launched > limits.instances:
            return (
                f"partition {name} may have {limits.instances:,} instances"
                f" (partitions.{name}.limits.instances)"
            )
        if budget.per_month is not None and self.spent >= budget.per_month:
            return (
                f"partition {name} has spent its budget of this month, {_usd(budget.per_month)}"
                f" (partitions.{name}.budget.usd_per_month)"
            )
        if budget.per_hour is not None and self.per_hour + price > budget.per_hour:
            return (
                f"partition {name} may spend {_usd(budget.per_hour)} per hour"
                f" (partitions.{name}.budget.usd_per_hour)"
            )
        return ""


def allowance(state: Records, sums: Sums, partition: Partition, now: Millis) -> Allowance:
    """Allowance of a partition at present.

    Args:
        state: The records.
        sums: Sums over each partition, by the name on record.
        partition: The partition.
        now: The time.
    """
    ours = [
        instance
        for instance in map(state.instances.__getitem__, state.live)
        if _is_of(instance, partition)
    ]
    return Allowance(
        partition,
        instances=len(ours),
        per_hour=counted_per_hour(ours),
        spent=_spent(state, sums, partition, now),
    )


def _spent(state: Records, sums: Sums, partition: Partition, now: Millis) -> int:
    if partition.budget.per_month is None:
        return 0
    booked = sums.get(partition.name, PartitionTotals())
    return ledger.month_of_instances(
        state, booked, lambda instance: _is_of(instance, partition), now
    )


def leeway(state: Records, sums: Sums, limits: Limits, partition: Partition, now: Millis) -> Leeway:
    """Number and price of further launches in a partition.

    Args:
        state: The records.
        sums: Sums over each partition, by the name on record.
        limits: Limits of the cluster.
        partition: The partition; the whole of a cluster that is not divided.
        now: The time.
    """
    rooms = [] if limits.instances >= NO_LIMIT else [limits.instances - len(state.live)]
    own, budget = partition.limits.instances, partition.budget
    if not partition.bounded:
        return Leeway(max(0, rooms[0])) if rooms else UNLIMITED
    allowed = allowance(state, sums, partition, now)
    if own is not None:
        rooms.append(own - allowed.instances)
    if budget.per_month is not None and allowed.spent >= budget.per_month:
        rooms.append(0)
    rest = None if budget.per_hour is None else max(0, budget.per_hour - allowed.per_hour)
    return Leeway(max(0, min(rooms)) if rooms else None, rest)


def _is_of(instance: Instance, partition: Partition) -> bool:
    return instance.partition == partition.name


def _usd(amount: int) -> str:
    return f"${amount / MILLION:,.2f}"
