"""The page Money: the bill, divided as the viewer chooses; each division adds up to the bill."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from eva_client.cli.views.words import count, money, price, share
from eva_master.adapters.pages.shown.colours import Colour, colour_of
from eva_wire.rpc.messages import Bill
from eva_wire.values.durations import span

BY = ("job", "owner", "tenant", "workload", "partition", "type", "day", "part", "instance", "label")
_OF_JOBS = frozenset({"job", "owner", "tenant", "workload", "label"})
"""Divisions by job, of which the idle part is a row of its own."""


@dataclass(frozen=True, slots=True)
class ShareRow:
    """A part of the bill.

    Attributes:
        cost: In dollars, in words. exact: In micro-dollars.
        width: Its part of the largest one, from 0 to 100.
        second: Cost alone, or the idle part.
        third: Savings, or its share of the bill.
    """

    name: str
    href: str
    colour: Colour | None
    cost: str
    exact: int
    width: float
    second: str
    third: str
    note: str = ""
    idle: bool = False


@dataclass(frozen=True, slots=True)
class Tab:
    """A division of the bill."""

    by: str
    href: str
    chosen: bool


@dataclass(frozen=True, slots=True)
class MoneyPage:
    """Contents of the page.

    Attributes:
        by: The division. label: Key of the label, where jobs are divided by one.
        columns: Names of the last two columns.
        more: Whether rows are left out; then the rest is a row.
        attached: Costs of volumes and of addresses, in words.
    """

    tabs: tuple[Tab, ...]
    by: str
    label: str
    columns: tuple[str, str]
    rows: tuple[ShareRow, ...]
    cost: str
    no_packing: str
    saved: str
    saved_share: str
    lost: bool
    idle: str
    kept: str
    migrations: str
    exact: int
    attached: str


def money_page(bill: Bill, by: str, label: str = "") -> MoneyPage:
    """The page.

    Args:
        bill: The bill, with the items of the division.
        by: The division, one of `BY`.
        label: Key of the label, where jobs are divided by one.
    """
    rows = list(_rows(bill, by)) if bill.cost_micro_usd else []
    listed = sum(row.exact for row in rows)
    if by in _OF_JOBS and bill.cost_micro_usd:
        rows.append(_row("idle: room that no task used", bill.idle_micro_usd, "-", "-", idle=True))
        listed += bill.idle_micro_usd
    if rest := bill.cost_micro_usd - listed:
        rows.append(_row("the rest, not listed here", rest, "-", "-", idle=True))
    most = max((row.exact for row in rows), default=0)
    saved = bill.no_packing_micro_usd - bill.cost_micro_usd
    return MoneyPage(
        tabs=tuple(Tab(name, f"/money?by={name}", name == by) for name in BY),
        by=by,
        label=label,
        columns=("alone", "saved") if by in _OF_JOBS else ("idle", "share"),
        rows=tuple(_wide(row, most) for row in rows),
        cost=money(bill.cost_micro_usd),
        no_packing=money(bill.no_packing_micro_usd),
        saved=money(abs(saved)),
        saved_share=share(abs(saved), bill.no_packing_micro_usd),
        lost=saved < 0,
        idle=money(bill.idle_micro_usd),
        kept=money(bill.kept_micro_usd) if bill.kept_micro_usd else "",
        migrations=count(bill.migrations, "migration"),
        exact=bill.cost_micro_usd,
        attached=_attached(bill),
    )


def _attached(bill: Bill) -> str:
    """The parts of the bill for volumes and addresses, where they cost anything."""
    parts = (("volumes", bill.volumes_micro_usd), ("addresses", bill.addresses_micro_usd))
    return ", ".join(f"{money(amount)} {name}" for name, amount in parts if amount)


def _rows(bill: Bill, by: str) -> Iterable[ShareRow]:
    if by == "instance":
        for node in bill.instances:
            yield _row(
                node.id,
                node.cost_micro_usd,
                money(node.idle_micro_usd),
                share(node.cost_micro_usd, bill.cost_micro_usd),
                href=f"/cluster/{node.id}",
                note=f"{node.type}, {price(node.price_micro_usd_per_hour)}, {span(node.billed_ms)}",
            )
    else:
        for entry in bill.shares:
            alone, cost = entry.no_packing_micro_usd, entry.cost_micro_usd
            of_jobs, job = by in _OF_JOBS, entry.name if by == "job" else ""
            yield _row(
                entry.name or "(others)",
                cost,
                money(alone if of_jobs else entry.idle_micro_usd),
                share(alone - cost, alone) if of_jobs else share(cost, bill.cost_micro_usd),
                href=f"/jobs/{job}" if job else "",
                colour=colour_of(job) if job else None,
            )


def _row(
    name: str,
    cost: int,
    second: str,
    third: str,
    *,
    href: str = "",
    colour: Colour | None = None,
    note: str = "",
    idle: bool = False,
) -> ShareRow:
    return ShareRow(name, href, colour, money(cost), cost, 0.0, second, third, note, idle)


def _wide(row: ShareRow, most: int) -> ShareRow:
    return replace(row, width=round(100 * row.exact / most, 2) if most > 0 and row.exact > 0 else 0)
