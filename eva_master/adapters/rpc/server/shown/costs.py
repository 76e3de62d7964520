"""The bill, accounts and budgets as messages and notes."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from eva_master.adapters.bills import divided_bill
from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.model.accounting.splits import NO_SHARE, CostSplit, DividedBill, SplitKind
from eva_master.model.changes import InstanceAccount
from eva_master.model.records import Instance
from eva_master.ports.reading import JobRecord, ReadModel
from eva_wire.values.ids import Millis, micro_usd

_NEAR = 0.8
"""Part of a budget from which on it is told."""


def bill(model: ReadModel, now: Millis) -> pb.Bill:
    """The sums of the bill as of `now`; each is rounded once, no sum of rounded parts."""
    sums, parts = model.cost(now), divided_bill(model, CostSplit(SplitKind.PART), now).by_name
    return pb.Bill(
        volumes_micro_usd=parts.get("volumes", NO_SHARE).charged,
        addresses_micro_usd=parts.get("addresses", NO_SHARE).charged,
        cost_micro_usd=micro_usd(sums.charged),
        idle_micro_usd=micro_usd(sums.idle),
        no_packing_micro_usd=micro_usd(sums.alone),
        kept_micro_usd=micro_usd(sums.kept),
        migrations=model.totals.migrations,
        now_ms=now,
        pools=[
            pb.PoolCost(
                pool=pool,
                cost_micro_usd=micro_usd(cost.charged),
                idle_micro_usd=micro_usd(cost.idle),
                spot_micro_usd=micro_usd(cost.spot),
                on_demand_micro_usd=micro_usd(cost.on_demand),
                unpriced_micro_usd=micro_usd(cost.unpriced),
            )
            for pool, cost in sums.pools.items()
        ],
    )


def cost_shares(bill: DividedBill) -> list[pb.CostShare]:
    """Convert the parts of a bill to messages."""
    return [
        pb.CostShare(
            name=share.name,
            cost_micro_usd=share.charged,
            idle_micro_usd=share.idle,
            no_packing_micro_usd=share.alone,
        )
        for share in bill.shares
    ]


def job_cost(record: JobRecord) -> pb.JobCost:
    """Convert the account of a job to a message."""
    return pb.JobCost(
        id=record.job.id,
        name=record.job.spec.name,
        cost_micro_usd=micro_usd(record.account.charged),
        no_packing_micro_usd=micro_usd(record.account.alone),
        replicas_micro_usd=micro_usd(record.account.replicas),
    )


def instance_cost(record: Instance, account: InstanceAccount) -> pb.InstanceCost:
    """Convert the account of an instance to a message."""
    up_ms = account.until_ms if record.up_ms is None else record.up_ms
    least_ms = record.offering.minimum_ms if account.closed else 0
    return pb.InstanceCost(
        id=record.id,
        type=record.offering.type.name,
        price_micro_usd_per_hour=record.offering.price,
        billed_ms=max(account.until_ms - up_ms, least_ms),
        cost_micro_usd=micro_usd(account.charged),
        idle_micro_usd=micro_usd(account.idle),
        closed=account.closed,
    )


def budget_notes(
    name: str, amounts: tuple[int, int], budget: str, words: Callable[[int], str]
) -> Iterator[pb.Note]:
    """A note on a budget that is spent or nearly so.

    Args:
        name: Its holder.
        amounts: The amount spent, and the budget.
        budget: Its kind, in words.
        words: Writes an amount.
    """
    spent, most = amounts
    if spent < _NEAR * most:
        return
    over = spent >= most
    end = "Nothing more is bought, and what runs goes on." if over else "Purchases stop at its end."
    yield pb.Note(
        level="bad" if over else "warn",
        kind="money",
        subject=name,
        sentence=f"{words(spent)} of {words(most)} is spent, its {budget}.",
        advice=f"{end} The master's settings raise it.",
    )
