"""The command that shows whom jobs are accounted to, and what that costs them."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from eva_master.app.cli.session import (
    Session,
    address_option,
    console,
    json_option,
    pass_session,
    print_json,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eva_master.adapters.rpc.messages import Tenant, TenantsResponse

_ENDED = frozenset({"succeeded", "failed", "cancelled"})
_NAMED = 3
"""Owners and patterns of a tenant that a table names."""


@click.command()
@json_option
@address_option
@pass_session
def tenants(session: Session, as_json: bool) -> None:
    """List tenants with their jobs and costs.

    A job is accounted to the tenant that its owner had when it was submitted. Tenants are in the
    master's settings (`tenants`); owners whom none names belong to the tenant `default`. A tenant
    in parentheses is no longer in the settings.
    """
    with session.client() as client:
        answer = client.tenants()
    if as_json:
        print_json({"tenants": [_shape(one) for one in answer.tenants]})
    else:
        console().print(_table(answer.tenants))


def cost_by_tenant(session: Session, limit: int | None, as_json: bool) -> None:
    """Show what each tenant's jobs cost, and what all do.

    Args:
        session: Of the command.
        limit: At most so many tenants; `None` for all.
        as_json: Whether for programs.
    """
    from eva_master.app.cli.views import shapes

    with session.client() as client:
        answer = client.tenants()
    listed = list(islice(answer.tenants, limit))
    if as_json:
        found = [{"name": one.name, **_money(one)} for one in listed]
        print_json({**shapes.bill_sums(answer.bill), "tenants": found})
    else:
        console().print(_bill(answer, listed))


def _table(messages: Iterable[Tenant]) -> RenderableType:
    from eva_master.app.cli.views.tables import grid
    from eva_master.app.cli.views.words import money, plain

    right = ("JOBS", "RUNNING", "ENDED", "COST", "ALONE")
    table = grid("TENANT", *right, "OWNERS", right=right)
    for one in messages:
        table.add_row(
            plain(f"({one.name})" if one.former else one.name),
            f"{_active(one):,}",
            f"{one.jobs_by_state.get('running', 0):,}",
            f"{_ended(one):,}",
            money(one.cost_micro_usd),
            money(one.no_packing_micro_usd),
            plain(_owners(one)),
        )
    return table


def _bill(answer: TenantsResponse, listed: Sequence[Tenant]) -> RenderableType:
    from eva_master.app.cli.views.bills import totals
    from eva_master.app.cli.views.tables import grid
    from eva_master.app.cli.views.words import money, plain, share

    table = grid("TENANT", "COST", "ALONE", "SAVED", right=("COST", "ALONE", "SAVED"))
    for one in listed:
        saved = one.no_packing_micro_usd - one.cost_micro_usd
        table.add_row(
            plain(f"({one.name})" if one.former else one.name),
            money(one.cost_micro_usd),
            money(one.no_packing_micro_usd),
            share(saved, one.no_packing_micro_usd),
        )
    table.add_row("idle", money(answer.bill.idle_micro_usd), "-", "-", style="dim")
    return Group(table, Text(), totals(answer.bill))


def _owners(message: Tenant) -> str:
    """The first owners and patterns, and how many more there are."""
    if message.former:
        return "no longer in the settings"
    if not message.owners:
        return "everybody else"
    more = len(message.owners) - _NAMED
    return ", ".join(message.owners[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _active(message: Tenant) -> int:
    return sum(number for state, number in message.jobs_by_state.items() if state not in _ENDED)


def _ended(message: Tenant) -> int:
    return sum(number for state, number in message.jobs_by_state.items() if state in _ENDED)


def _money(message: Tenant) -> dict[str, Any]:
    from eva_master.app.cli.views import shapes

    return {
        **shapes.money("cost", message.cost_micro_usd),
        **shapes.money("no_packing", message.no_packing_micro_usd),
    }


def _shape(message: Tenant) -> dict[str, Any]:
    return {
        "name": message.name,
        "owners": list(message.owners),
        "former": message.former,
        "jobs": _active(message),
        "running": message.jobs_by_state.get("running", 0),
        "ended": _ended(message),
        "jobs_by_state": dict(sorted(message.jobs_by_state.items())),
        **_money(message),
    }
