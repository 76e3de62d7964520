"""Shows the bill as tables and CSV. Pure functions of their arguments."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from datetime import date
from io import StringIO
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from eva_client.cli.views.grid import Grid
from eva_client.cli.views.shapes import OF_INSTANCES, of_jobs
from eva_client.cli.views.words import count, money, plain, price, share
from eva_wire.rpc.messages import CostShare
from eva_wire.values.durations import span
from eva_wire.values.ids import MILLION

if TYPE_CHECKING:
    from eva_wire.rpc.messages import Bill


_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_ACTIVE_CELL = ("=", "+", "-", "@", "\t", "\r")
"""Beginnings of cells that spreadsheets take for formulas."""


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


def _attached(message: Bill) -> str:
    """Lines with the parts of the bill, where instances have volumes or addresses that cost."""
    volumes, addresses = message.volumes_micro_usd, message.addresses_micro_usd
    if not volumes and not addresses:
        return ""
    rest = message.cost_micro_usd - volumes - addresses
    parts = (("instances", rest), ("volumes", volumes), ("addresses", addresses))
    return "".join(f"\n{f'of it {name}':<16} {money(amount)}" for name, amount in parts)


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
        _attached(message),
    )


def first_shares(shares: Sequence[CostShare], most: int | None) -> list[CostShare]:
    """The first parts; all others as one of no name, so that they add up to the same.

    Args:
        shares: Parts of the bill.
        most: Number of parts with a name; `None` for all.
    """
    named = [part for part in shares if part.name]
    kept = named[:most]
    others = [*named[len(kept) :], *(part for part in shares if not part.name)]
    if not others:
        return kept
    rest = CostShare(
        cost_micro_usd=sum(part.cost_micro_usd for part in others),
        idle_micro_usd=sum(part.idle_micro_usd for part in others),
        no_packing_micro_usd=sum(part.no_packing_micro_usd for part in others),
    )
    return [*kept, rest]


def table_of_shares(message: Bill, shares: Sequence[CostShare]) -> Grid:
    """A table of parts of the bill, with a line for what belongs to no job, and the total.

    Args:
        message: The bill.
        shares: Its parts.
    """
    by, whole = message.by, message.cost_micro_usd
    figures = ["COST", "SHARE"]
    if not of_jobs(by):
        figures.append("IDLE")
    if by not in OF_INSTANCES:
        figures += ["ALONE", "SAVED"]
    table = Grid(by.upper(), *figures, right=figures, drop=("SHARE", "ALONE", "IDLE"))

    def row(name: str, cost: int, idle: int, alone: int | None, style: str = "") -> None:
        cells = {
            "COST": money(cost),
            "SHARE": share(cost, whole),
            "IDLE": money(idle),
            "ALONE": "-" if alone is None else money(alone),
            "SAVED": "-" if alone is None else share(alone - cost, alone),
        }
        table.add_row(plain(name), *(cells[figure] for figure in figures), style=style)

    for part in shares:
        name = _day(part.name) if by == "day" and part.name else part.name or rest_of(by)
        row(name, part.cost_micro_usd, part.idle_micro_usd, part.no_packing_micro_usd)
    if of_jobs(by):
        row("idle", message.idle_micro_usd, 0, None, style="dim")
    row("total", whole, message.idle_micro_usd, message.no_packing_micro_usd, style="bold")
    return table


def csv_of_shares(message: Bill, shares: Sequence[CostShare]) -> str:
    """The parts of the bill as CSV, whose column `cost_usd` adds up to it.

    Amounts are dollars with six digits, which is exact. Cells that a spreadsheet would take for a
    formula begin with an apostrophe.

    Args:
        message: The bill.
        shares: Its parts.
    """
    text = StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow((message.by.partition(":")[0], "cost_usd", "idle_usd", "no_packing_usd"))
    for part in shares:
        amounts = part.cost_micro_usd, part.idle_micro_usd, part.no_packing_micro_usd
        lines.writerow((_cell(part.name or rest_of(message.by)), *map(_usd, amounts)))
    if of_jobs(message.by):
        idle = _usd(message.idle_micro_usd)
        lines.writerow(("(idle)", idle, idle, _usd(0)))
    return text.getvalue()


def rest_of(by: str) -> str:
    """A name for all that is of no name of its own."""
    if by.startswith("label:"):
        return f"(no {by.removeprefix('label:')})"
    return "(earlier)" if by in ("day", "job") else "(others)"


def _day(name: str) -> str:
    return f"{name} {_WEEKDAYS[date.fromisoformat(name).weekday()]}"


def _cell(name: str) -> str:
    return f"'{name}" if name.startswith(_ACTIVE_CELL) else name


def _usd(micro_usd: int) -> str:
    sign, whole = "-" if micro_usd < 0 else "", abs(micro_usd)
    return f"{sign}{whole // MILLION}.{whole % MILLION:06}"
