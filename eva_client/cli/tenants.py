"""The command that shows whom jobs are accounted to, and what that costs them."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import click
from rich.console import Group, RenderableType
from rich.text import Text

from eva_client.cli.session import (
    CommandSession,
    address_option,
    console,
    json_option,
    pass_session,
    print_json,
)
from eva_wire.values.ids import MILLIS_PER_HOUR

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eva_wire.rpc.messages import Tenant, TenantsResponse

_ENDED = frozenset({"succeeded", "failed", "cancelled"})
_PAYMENTS = "paid_micro_usd", "earned_micro_usd", "received_micro_usd", "given_micro_usd"
_NAMED = 3
"""Owners and patterns of a tenant that a table names."""


@click.command()
@json_option
@address_option
@pass_session
def tenants(session: CommandSession, as_json: bool) -> None:
    """List tenants with their jobs and costs.

    A job is accounted to the tenant that its owner had when it was submitted. Tenants are in the
    master's settings (`tenants`); owners whom none names belong to the tenant `default`. A tenant
    in parentheses is no longer in the settings.
    """
    with session.client() as client:
        answer = client.tenants()
    if as_json:
        print_json({"tenants": [_shape(tenant) for tenant in answer.tenants]})
    else:
        console().print(_table(answer.tenants))


def cost_by_tenant(session: CommandSession, limit: int | None, as_json: bool) -> None:
    """Show what each tenant's jobs cost, and what all do.

    Args:
        session: Of the command.
        limit: At most so many tenants; `None` for all.
        as_json: Whether for programs.
    """
    from eva_client.cli.views import shapes

    with session.client() as client:
        answer = client.tenants()
    listed = list(islice(answer.tenants, limit))
    if as_json:
        entries = [{"name": tenant.name, **_money(tenant), **_lending(tenant)} for tenant in listed]
        print_json({**shapes.bill_sums(answer.bill), "tenants": entries})
    else:
        console().print(_bill(answer, listed))


def _table(messages: Iterable[Tenant]) -> RenderableType:
    from eva_client.cli.views.grid import Grid
    from eva_client.cli.views.words import money, plain

    messages = list(messages)
    quotas = any(message.HasField("quota") for message in messages)
    budgets = any(message.HasField("budget_micro_usd") for message in messages)
    right = ("JOBS", "RUNNING", "ENDED", "COST", "ALONE", *(("BUDGET LEFT",) if budgets else ()))
    table = Grid(
        *("TENANT", *right, *(("QUOTA", "USE") if quotas else ()), "OWNERS"),
        right=right,
        notes=("QUOTA", "USE", "OWNERS"),
        drop=("ENDED", "RUNNING", "ALONE", "JOBS"),
    )
    for tenant in messages:
        table.add_row(
            plain(f"({tenant.name})" if tenant.former else tenant.name),
            f"{_active(tenant):,}",
            f"{tenant.jobs_by_state.get('running', 0):,}",
            f"{_ended(tenant):,}",
            money(tenant.cost_micro_usd),
            money(tenant.no_packing_micro_usd),
            *((_budget_left(tenant),) if budgets else ()),
            *((plain(_quota(tenant)), plain(_gpus(tenant.use))) if quotas else ()),
            plain(_owners(tenant)),
        )
    cut = sorted(message.name for message in messages if _is_scaled(message))
    if not cut:
        return table
    note = (
        "The fleet has fewer GPUs now than all quotas together. Until nodes are back, these are"
        f" scaled down in proportion: {', '.join(cut)}."
    )
    return Group(table, Text(), plain(note))


def _bill(answer: TenantsResponse, listed: Sequence[Tenant]) -> RenderableType:
    from eva_client.cli.views.bills import totals
    from eva_client.cli.views.grid import Grid
    from eva_client.cli.views.words import money, plain, share

    table = Grid("TENANT", "COST", "ALONE", "SAVED", right=("COST", "ALONE", "SAVED"))
    for tenant in listed:
        saved = tenant.no_packing_micro_usd - tenant.cost_micro_usd
        table.add_row(
            plain(f"({tenant.name})" if tenant.former else tenant.name),
            money(tenant.cost_micro_usd),
            money(tenant.no_packing_micro_usd),
            share(saved, tenant.no_packing_micro_usd),
        )
    table.add_row("idle", money(answer.bill.idle_micro_usd), "-", "-", style="dim")
    shown = [tenant for tenant in listed if any(getattr(tenant, payment) for payment in _PAYMENTS)]
    more = (Text(), _accounts(shown)) if shown else ()
    return Group(table, *more, Text(), totals(answer.bill))


def _accounts(listed: Sequence[Tenant]) -> RenderableType:
    """Table of tenants' worth, payments and loans."""
    from eva_client.cli.views.grid import Grid
    from eva_client.cli.views.words import money, plain

    right = ("VALUE", "PAID", "EARNED", "RECEIVED", "GIVEN", "OWN GPU-H", "BORROWED", "LENT")
    drop = ("LENT", "BORROWED", "OWN GPU-H")
    table = Grid("TENANT", *right, right=right, drop=drop)
    for tenant in listed:
        table.add_row(
            plain(f"({tenant.name})" if tenant.former else tenant.name),
            money(tenant.value_micro_usd),
            money(tenant.paid_micro_usd),
            money(tenant.earned_micro_usd),
            money(tenant.received_micro_usd),
            money(tenant.given_micro_usd),
            *(f"{ms / MILLIS_PER_HOUR:,.1f}" for ms in _gpu_ms(tenant)),
        )
    return table


def _gpu_ms(message: Tenant) -> tuple[int, int, int]:
    return message.own_gpu_ms, message.borrowed_gpu_ms, message.lent_gpu_ms


def _lending(message: Tenant) -> dict[str, Any]:
    from eva_client.cli.views import shapes

    own, borrowed, lent = (ms / MILLIS_PER_HOUR for ms in _gpu_ms(message))
    return {
        **shapes.money("value", message.value_micro_usd),
        **shapes.money("paid", message.paid_micro_usd),
        **shapes.money("earned", message.earned_micro_usd),
        **shapes.money("received", message.received_micro_usd),
        **shapes.money("given", message.given_micro_usd),
        "own_gpu_hours": own,
        "borrowed_gpu_hours": borrowed,
        "lent_gpu_hours": lent,
    }


def _owners(message: Tenant) -> str:
    """The first owners and patterns, and how many more there are."""
    if message.former:
        return "no longer in the settings"
    if not message.owners:
        return "everybody else"
    more = len(message.owners) - _NAMED
    return ", ".join(message.owners[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")


def _is_scaled(message: Tenant) -> bool:
    return dict(message.quota.stated) != dict(message.quota.now)


def _quota(message: Tenant) -> str:
    """The quota as it is now, and as stated where that is more."""
    if not message.HasField("quota"):
        return "-"
    stated = message.quota.stated
    return (
        ", ".join(
            f"{gpus:,} {family}" + (f" (of {stated[family]:,})" if stated[family] != gpus else "")
            for family, gpus in sorted(message.quota.now.items())
        )
        or "0"
    )


def _gpus(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{gpus:,} {family}" for family, gpus in sorted(counts.items())) or "0"


def _budget_left(message: Tenant) -> str:
    from eva_client.cli.views.words import money

    if not message.HasField("budget_micro_usd"):
        return "-"
    return money(max(0, message.budget_micro_usd - message.month_micro_usd))


def _limits(message: Tenant) -> dict[str, Any]:
    """A tenant's limits and use; empty without limits."""
    from eva_client.cli.views import shapes

    fields: dict[str, Any] = {}
    if message.HasField("quota"):
        fields["quota"] = dict(sorted(message.quota.stated.items()))
        fields["quota_now"] = dict(sorted(message.quota.now.items()))
    if message.HasField("budget_micro_usd"):
        fields.update(shapes.money("budget", message.budget_micro_usd))
        fields.update(shapes.money("spent_this_month", message.month_micro_usd))
    return {**fields, "use": dict(sorted(message.use.items()))} if fields else {}


def _active(message: Tenant) -> int:
    return sum(number for state, number in message.jobs_by_state.items() if state not in _ENDED)


def _ended(message: Tenant) -> int:
    return sum(number for state, number in message.jobs_by_state.items() if state in _ENDED)


def _money(message: Tenant) -> dict[str, Any]:
    from eva_client.cli.views import shapes

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
        **_limits(message),
    }
