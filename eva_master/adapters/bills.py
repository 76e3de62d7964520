"""The bill as the page of money and `eva cost` show it."""

from __future__ import annotations

from eva_master.model.accounting.splits import CostSplit, DividedBill, divided
from eva_master.model.accounting.totals import CostTotals
from eva_master.ports.reading import ReadModel
from eva_wire.values.ids import Millis

MOST_SHARES = 1_000
"""Parts of a bill that are shown; all others are the rest."""


def divided_bill(
    model: ReadModel, split: CostSplit, now: Millis, most: int = MOST_SHARES
) -> DividedBill:
    """The bill as of `now`, divided by one of `SplitKind`.

    The only place that divides it: pages and RPCs show the same micro-dollars, and all parts,
    with `DividedBill.between` for what belongs to no job, add up to the bill. Example:

        bill = divided_bill(model, CostSplit.of("label:team"), clock.now())
        for share in bill.shares:  # dearest first; share.name is "" for the rest
            ...

    Of jobs, those in memory are parts of their own: active ones, and those that ended less than
    `history_kept` ago. Each call takes time with the live instances, and with the names.

    Args:
        model: The cluster.
        split: The property.
        now: The time.
        most: Number of parts to keep apart.
    """
    sums = model.cost(now)
    whole = CostTotals(sums.charged, sums.idle, sums.alone)
    return divided(split, model.costs(split, now), whole, most)
