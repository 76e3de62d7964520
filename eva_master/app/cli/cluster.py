"""Commands on the cluster: nodes, cost, top."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from eva_master.app.cli.session import (
    Patience,
    Session,
    address_option,
    console,
    json_option,
    pass_session,
    print_json,
)
from eva_master.model.errors import Unreachable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from eva_master.adapters.rpc.client.master import Client


@click.command()
@click.option("--all", "-a", "gone", is_flag=True, help="Instances that are gone, too.")
@json_option
@address_option
@pass_session
def nodes(session: Session, gone: bool, as_json: bool) -> None:
    """List instances with what runs on them and what they cost."""
    from eva_master.app.cli.views import shapes, tables

    with session.client() as client:
        state = client.describe(gone=gone)
    if as_json:
        print_json(shapes.cluster(state))
    elif state.instances:
        console().print(tables.nodes(state))
    else:
        click.echo("no instances: nothing is being paid for")


@click.command()
@json_option
@address_option
@pass_session
def cost(session: Session, as_json: bool) -> None:
    """Show what was spent, on what, and what it would have been without packing."""
    from eva_master.app.cli.views import shapes, tables

    with session.client() as client:
        bill = client.cost()
    if as_json:
        print_json(shapes.bill(bill))
    else:
        console().print(tables.bill(bill))


@click.command()
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=1.0,
    show_default=True,
    help="Seconds from one picture to the next.",
)
@click.option("--once", is_flag=True, help="Draw one picture and leave.")
@json_option
@address_option
@pass_session
def top(session: Session, interval: float, once: bool, as_json: bool) -> None:
    """Watch instances, tasks and money."""
    with session.client() as client:
        if as_json:
            print_json(_shape(client))
            return
        screen = console()
        if once or not screen.is_terminal:
            screen.print(_picture(client))
            return
        _watch(client, interval)


def _watch(client: Client, interval: float) -> None:
    from rich.live import Live

    patience = Patience()
    with Live(_picture(client), console=console(), screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(interval)
            try:
                live.update(_picture(client), refresh=True)
                patience.restore()
            except Unreachable as error:
                patience.pause(error)


def _picture(client: Client) -> RenderableType:
    from eva_master.app.cli.views.live import render

    return render(client.describe(), list(client.jobs()), client.cost())


def _shape(client: Client) -> dict[str, object]:
    from eva_master.app.cli.views import shapes

    return {
        "cluster": shapes.cluster(client.describe()),
        "jobs": [shapes.job(one) for one in client.jobs()],
        "bill": shapes.bill(client.cost()),
    }
