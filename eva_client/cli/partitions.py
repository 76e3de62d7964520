"""Commands on the parts of the cluster: partitions, move."""

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

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eva_wire.rpc.messages import Partition, PartitionsResponse

_ENDED = frozenset({"ending", "succeeded", "failed", "cancelled"})


@click.command()
@json_option
@address_option
@pass_session
def partitions(session: CommandSession, as_json: bool) -> None:
    """List the parts of the cluster with their jobs, instances and costs.

    Partitions are in the master's settings (`partitions`); a cluster that is not divided is one
    partition named `default`. JOBS, TASKS and NODES are those of now, after a slash what is
    allowed. HOURLY is what its instances cost per hour, MONTH what this calendar month (UTC) has
    cost, after a slash the budget; a cluster that is not divided does not count it. A partition in
    parentheses is no longer in the settings.
    """
    with session.client() as client:
        answer = client.partitions()
    if as_json:
        print_json({"partitions": [_shape(partition) for partition in answer.partitions]})
    else:
        console().print(_table(answer.partitions))


@click.command()
@click.argument("job")
@click.argument("partition")
@json_option
@address_option
@pass_session
def move(session: CommandSession, job: str, partition: str, as_json: bool) -> None:
    """Have a job run in another partition.

    A job that waits is planned there from now on. One that runs is stopped from its last
    checkpoint, a gang as a whole, and goes on there once there is room. A job that is there already
    stays as it is.
    """
    with session.client() as client:
        message = client.job(job, to_change=True)
        over = message.state in _ENDED
        if not over:
            client.move(message.id, partition)
    moved = not over and message.partition != partition
    if over:
        words = "is ending" if message.state == "ending" else f"has ended already: {message.state}"
    else:
        words = f"runs in partition {partition} from now on" if moved else "is there already"
    if as_json:
        print_json({"id": message.id, "partition": partition, "changed": moved, "message": words})
    else:
        click.echo(f"{message.id}: {words}")


def cost_by_partition(session: CommandSession, limit: int | None, as_json: bool) -> None:
    """Show what each partition's instances cost, and what all do.

    Args:
        session: Of the command.
        limit: At most so many partitions; `None` for all.
        as_json: Whether for programs.
    """
    from eva_client.cli.views import shapes

    with session.client() as client:
        answer = client.partitions()
    listed = list(islice(answer.partitions, limit))
    if as_json:
        entries = [{"name": partition.name, **_money(partition)} for partition in listed]
        print_json({**shapes.bill_sums(answer.bill), "partitions": entries})
    else:
        console().print(_bill(answer, listed))


def _table(messages: Iterable[Partition]) -> RenderableType:
    from eva_client.cli.views.grid import Grid
    from eva_client.cli.views.words import money, plain

    right = ("JOBS", "TASKS", "NODES", "HOURLY", "MONTH", "COST")
    drop = ("TASKS", "POLICY", "JOBS", "NODES", "MONTH")
    table = Grid("PARTITION", "POLICY", *right, "NOTE", right=right, drop=drop)
    for message in messages:
        table.add_row(
            plain(_name(message)),
            plain(message.policy or "-"),
            _of(message, "jobs"),
            _of(message, "tasks"),
            _of(message, "instances"),
            _spent(message.price_micro_usd_per_hour, _set(message, "budget_micro_usd_per_hour")),
            _spent(message.month_micro_usd, _set(message, "budget_micro_usd_per_month")),
            money(message.cost_micro_usd),
            _note(message),
        )
    return table


def _bill(answer: PartitionsResponse, listed: Sequence[Partition]) -> RenderableType:
    from eva_client.cli.views.bills import totals
    from eva_client.cli.views.grid import Grid
    from eva_client.cli.views.words import money, plain, share

    table = Grid("PARTITION", "COST", "IDLE", "SHARE", right=("COST", "IDLE", "SHARE"))
    for partition in listed:
        table.add_row(
            plain(_name(partition)),
            money(partition.cost_micro_usd),
            money(partition.idle_micro_usd),
            share(partition.cost_micro_usd, answer.bill.cost_micro_usd),
        )
    return Group(table, Text(), totals(answer.bill))


def _name(message: Partition) -> str:
    return f"({message.name})" if message.former else message.name


def _set(message: Partition, field: str) -> int | None:
    """The field's value in the settings, `None` without one."""
    present = {descriptor.name for descriptor, _ in message.ListFields()}
    return getattr(message, field) if field in present else None


def _of(message: Partition, what: str) -> str:
    """How many there are, and how many there may be."""
    most = _set(message, f"most_{what}")
    return f"{getattr(message, what):,}" + ("" if most is None else f"/{most:,}")


def _spent(amount: int, budget: int | None) -> str:
    """Spending and its limit."""
    from eva_client.cli.views.words import money

    return money(amount) + ("" if budget is None else f"/{money(budget)}")


def _note(message: Partition) -> str:
    if message.former:
        return "no longer in the settings"
    notes = []
    if message.default:
        notes.append("default")
    if not message.open:
        notes.append("not open to you")
    return ", ".join(notes)


def _money(message: Partition) -> dict[str, Any]:
    from eva_client.cli.views import shapes

    return {
        **shapes.money("cost", message.cost_micro_usd),
        **shapes.money("idle", message.idle_micro_usd),
    }


def _shape(message: Partition) -> dict[str, Any]:
    from eva_client.cli.views import shapes

    limits = ("jobs", "tasks", "instances")
    return {
        "name": message.name,
        "policy": message.policy or None,
        "default": message.default,
        "former": message.former,
        "open": message.open,
        "offerings": message.offerings,
        "jobs": message.jobs,
        "tasks": message.tasks,
        "instances": message.instances,
        "limits": {what: _set(message, f"most_{what}") for what in limits},
        **shapes.hourly("price", message.price_micro_usd_per_hour),
        "budget_micro_usd_per_hour": _set(message, "budget_micro_usd_per_hour"),
        "budget_micro_usd_per_month": _set(message, "budget_micro_usd_per_month"),
        **shapes.money("month", message.month_micro_usd),
        **_money(message),
    }
