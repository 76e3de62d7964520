"""Shows the bill as tables. Pure functions of their arguments."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from eva_client.cli.views.grid import Grid
from eva_client.cli.views.words import count, money, plain, price, share
from eva_wire.values.durations import span

if TYPE_CHECKING:
    from eva_wire.rpc.messages import Bill


def bill(message: Bill) -> RenderableType:
    """Tables of costs by job and instance, and the costs without packing."""
    by_job = Grid("JOB", "COST", "ALONE", "SAVED", right=("COST", "ALONE", "SAVED"))
    for job in message.jobs:
        saved = job.no_packing_micro_usd - job.cost_micro_usd
        by_job.add_row(
            job.id,
            money(job.cost_micro_usd),
            money(job.no_packing_micro_usd),
            share(saved, job.no_packing_micro_usd),
        )
    by_node = Grid(
        *("NODE", "TYPE", "PRICE", "BILLED", "COST", "IDLE"),
        right=("PRICE", "BILLED", "COST", "IDLE"),
        drop=("BILLED", "TYPE", "PRICE"),
    )
    for node in message.instances:
        by_node.add_row(
            node.id,
            node.type,
            price(node.price_micro_usd_per_hour),
            span(node.billed_ms),
            money(node.cost_micro_usd),
            money(node.idle_micro_usd),
        )
    pools = (_pools(message), Text()) if message.pools else ()
    return Group(by_job, Text(), by_node, Text(), *pools, totals(message))


def shares(message: Bill, limit: int | None) -> RenderableType:
    """A table of what types of instances or owners of jobs cost, and the bill.

    Args:
        message: The bill.
        limit: At most so many of them; `None` for all.
    """
    of_types = message.by == "type"
    third = ("IDLE", "SHARE") if of_types else ("ALONE", "SAVED")
    table = Grid(message.by.upper(), "COST", *third, right=("COST", *third))
    for entry in islice(message.shares, limit):
        alone = entry.no_packing_micro_usd
        table.add_row(
            plain(entry.name or "(others)"),
            money(entry.cost_micro_usd),
            money(entry.idle_micro_usd if of_types else alone),
            share(entry.cost_micro_usd, message.cost_micro_usd)
            if of_types
            else share(alone - entry.cost_micro_usd, alone),
        )
    if not of_types:
        table.add_row("idle", money(message.idle_micro_usd), "-", "-", style="dim")
    return Group(table, Text(), totals(message))


def _pools(message: Bill) -> RenderableType:
    """How the bill divides by pool, and what spot members would have cost on demand."""
    numbers = ("COST", "IDLE", "SPOT", "ON DEMAND", "SAVED")
    table = Grid("POOL", *numbers, right=numbers)
    for pool in message.pools:
        saved = pool.on_demand_micro_usd - pool.spot_micro_usd
        spot = pool.spot_micro_usd + pool.unpriced_micro_usd
        compared = bool(pool.on_demand_micro_usd)
        nothing = "unknown" if pool.unpriced_micro_usd else "-"
        table.add_row(
            plain(pool.pool),
            money(pool.cost_micro_usd),
            money(pool.idle_micro_usd),
            money(spot) if spot else "-",
            money(pool.on_demand_micro_usd) if compared else nothing,
            f"{money(saved)} ({share(saved, pool.on_demand_micro_usd)})" if compared else nothing,
        )
    in_pools = sum(pool.cost_micro_usd for pool in message.pools)
    table.add_row(
        "(none)",
        money(message.cost_micro_usd - in_pools),
        money(message.idle_micro_usd - _idle_in_pools(message)),
        *("-" for _ in numbers[2:]),
    )
    return Group(table, *map(Text, _unpriced(message)))


def _unpriced(message: Bill) -> Iterator[str]:
    """Costs of pools without a price on demand to compare with."""
    for pool in message.pools:
        if pool.unpriced_micro_usd:
            yield (
                f"{plain(pool.pool)}: {money(pool.unpriced_micro_usd)} is for spot instances of "
                "which no price on demand was known, so they are not in ON DEMAND and SAVED"
            )


def _idle_in_pools(message: Bill) -> int:
    return sum(pool.idle_micro_usd for pool in message.pools)


def _kept(message: Bill) -> str:
    """The idle time of instances that had emptied and stayed."""
    if not message.kept_micro_usd:
        return ""
    kept = money(message.kept_micro_usd)
    return f"\nof what is idle {kept} is for instances that were kept for tasks that waited"


def totals(message: Bill) -> Text:
    """The bill in two sentences."""
    cost, alone = message.cost_micro_usd, message.no_packing_micro_usd
    verb = "saved" if alone >= cost else "lost"
    pools = f", {money(_idle_in_pools(message))} of it in pools" if message.pools else ""
    return Text.assemble(
        ("cost ", "bold"),
        f"{money(cost)} ({money(message.idle_micro_usd)} idle{pools}); ",
        f"without packing {money(alone)}; ",
        (f"{verb} {money(abs(alone - cost))} ({share(abs(alone - cost), alone)})", "bold green"),
        f"; {count(message.migrations, 'migration')}",
        _kept(message),
    )
