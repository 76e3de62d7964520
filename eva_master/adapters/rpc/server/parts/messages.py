"""Partitions as messages of the users' port."""

from __future__ import annotations

from collections import defaultdict

from eva_master.adapters.bills import divided_bill
from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.adapters.rpc.server.shown.costs import bill
from eva_master.model.accounting.per_hour import billed_per_hour
from eva_master.model.accounting.splits import NO_SHARE, CostSplit, SplitKind
from eva_master.model.accounting.totals import PartitionTotals
from eva_master.model.fleet.partitions import UNDIVIDED, Partition
from eva_master.model.records import Instance
from eva_master.ports.reading import ReadModel
from eva_wire.values.ids import Millis, micro_usd
from eva_wire.values.users import Role, UserToken


def response(model: ReadModel, who: UserToken, now: Millis) -> pb.PartitionsResponse:
    """Each partition's holdings and costs as of `now`.

    Their micro-dollars add up to those of the bill.

    Args:
        model: The cluster.
        who: The caller.
        now: The time.
    """
    totals, partitions = model.of_partitions(now), model.partitions
    declared = {partition.name: partition for partition in partitions.all}
    instances: defaultdict[str, list[Instance]] = defaultdict(list)
    for live in model.live.values():
        instances[partitions.home(live.partition).name].append(live)
    listed = [*declared, *sorted(totals.keys() - declared.keys())]
    shares = divided_bill(model, CostSplit(SplitKind.PARTITION), now, most=len(listed)).by_name
    messages = []
    for name in listed:
        sums, share = totals.get(name, PartitionTotals()), shares.get(name or UNDIVIDED, NO_SHARE)
        message = pb.Partition(
            name=name or UNDIVIDED,
            former=name not in declared,
            jobs=sums.jobs,
            tasks=sums.tasks,
            instances=len(instances[name]),
            price_micro_usd_per_hour=billed_per_hour(instances[name]),
            cost_micro_usd=share.charged,
            idle_micro_usd=share.idle,
            month_micro_usd=micro_usd(sums.month_charged),
        )
        if (partition := declared.get(name)) is not None:
            _settings(message, partition)
            message.offerings = len(partition.sold(model.catalog))
            message.open = who.role is Role.OPERATOR or partition.admits(who.owner)
        messages.append(message)
    return pb.PartitionsResponse(partitions=messages, bill=bill(model, now))


def _settings(message: pb.Partition, partition: Partition) -> None:
    """Say what the settings have of a partition; what is not limited is left out."""
    message.policy, message.default = partition.policy, partition.default
    if partition.budget.per_hour is not None:
        message.budget_micro_usd_per_hour = partition.budget.per_hour
    if partition.budget.per_month is not None:
        message.budget_micro_usd_per_month = partition.budget.per_month
    for what in ("jobs", "tasks", "instances"):
        most = getattr(partition.limits, what)
        if most is not None:
            setattr(message, f"most_{what}", most)
