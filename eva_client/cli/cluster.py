"""Commands on the cluster: nodes, cost, top."""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING

import click

from eva_client.cli.partitions import cost_by_partition
from eva_client.cli.refusals import refusals
from eva_client.cli.session import (
    CommandSession,
    FiniteRange,
    Patience,
    address_option,
    console,
    json_option,
    limit_option,
    pass_session,
    print_json,
    print_json_lists,
)
from eva_client.cli.tenants import cost_by_tenant
from eva_client.cli.views.errors import note
from eva_client.cli.views.words import count
from eva_wire.values.errors import Unreachable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from eva_client.rpc.master import Client
    from eva_wire.rpc.messages import Instance


_SHOWN = 200
"""Lines of a table of everything that ever was, unless more are asked for."""
_BILLED = 50
_LARGEST_PAGE = 1000


@click.command()
@click.option("--all", "-a", "gone", is_flag=True, help="List instances that are gone, too.")
@limit_option
@json_option
@address_option
@pass_session
def nodes(session: CommandSession, gone: bool, limit: int | None, as_json: bool) -> None:
    """List instances with their tasks and prices, and owned nodes.

    With --all they come newest first, and a table ends after 200 unless you say otherwise.
    """
    from eva_client.cli.views import shapes, tables

    with session.client() as client:
        state = client.describe()
        listed = client.instances() if gone else iter(state.instances)
        owned = client.owned_nodes()
        if as_json:
            document = shapes.cluster(state)
            del document["instances"]
            entries = map(shapes.instance, islice(listed, limit))
            print_json_lists(document, {"instances": entries, "nodes": map(shapes.node, owned)})
            return
        shown = list(islice(listed, limit or (_SHOWN if gone else None)))
        more = next(listed, None) is not None
    if state.clock:
        note(state.clock)
    absent = [node for node in owned if not node.HasField("instance")]
    if shown or absent:
        console().print(tables.nodes(state, shown, absent))
        if more:
            click.echo(f"... and others; `--limit {10 * len(shown)}` shows more of them")
    else:
        click.echo("no instances: nothing is being paid for")


@click.command()
@click.argument("names", metavar="NODE...", nargs=-1, required=True)
@click.option("--move", is_flag=True, help="Move its tasks elsewhere where there is room.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
@address_option
@pass_session
def drain(
    session: CommandSession, names: tuple[str, ...], move: bool, yes: bool, as_json: bool
) -> None:
    """Release instances: they take no new tasks, and are terminated once they are empty.

    Their tasks finish where they are; with --move they go elsewhere as soon as there is room. Can
    be repeated, with --move or without. Instances that are refused do not hold up the others; the
    exit code is 1 then. For operators.
    """
    from eva_client.cli.views import shapes

    with refusals(quiet=as_json) as refused, session.client() as client:
        outcome = "their tasks move" if move else "their tasks finish there"
        refused.ask(f"drain {', '.join(names)} ({outcome})?", yes=yes)

        def release(name: str) -> Instance:
            instance = client.drain(name, move=move)
            rest = f"{count(len(instance.tasks), 'task')} left" if instance.tasks else "it is empty"
            if not as_json:
                click.echo(f"{instance.id} is {instance.state} and takes no new tasks; {rest}")
            return instance

        drained = refused.each(release, names)
        if as_json:
            instances = [shapes.instance(instance) for instance in drained]
            print_json({"instances": instances, "refused": refused.shapes("instance")})


@click.command()
@click.option(
    "--by",
    metavar="PROPERTY",
    help="Instead of jobs and instances: costs by owner, tenant, workload, label:KEY, partition, "
    "type (of instances), day (UTC), part (instances, volumes, addresses) or job.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV for spreadsheets; needs --by.")
@limit_option
@json_option
@address_option
@pass_session
def cost(
    session: CommandSession, by: str | None, limit: int | None, as_json: bool, as_csv: bool
) -> None:
    """Show the costs of jobs and instances, and what they would be without packing.

    The sums are over everything. The tables end after 50 jobs and 50 instances, the newest ones;
    JSON has all of them. --limit changes both; a table has 1,000 lines at most. Where instances
    stand in pools a table says how the bill divides by pool, and what their spot instances would
    have cost on demand.

    With --by, the lines add up to the bill. By owner, tenant, workload, label or job, time of
    instances that no task used, boots among it, is a line of its own, "idle"; by partition, type,
    day or part it is in each line. A line in parentheses has the rest: jobs without such a label,
    names beyond the first 1,000, days before the last 400, lines beyond --limit.

    \b
        eva cost --by day -n 30
        eva cost --by label:team --csv > teams.csv
    """  # noqa: D301
    from eva_client.cli.views import bills, shapes

    if as_csv and (by is None or as_json):
        raise click.UsageError("--csv needs --by, and excludes --json")
    if by is not None:
        by_name = {} if as_csv else {"tenant": cost_by_tenant, "partition": cost_by_partition}
        if by in by_name:
            by_name[by](session, limit, as_json)
        else:
            _cost_by(by, session, limit, as_json=as_json, as_csv=as_csv)
        return

    with session.client() as client:
        if as_json:
            print_json_lists(
                shapes.bill_sums(client.cost(newest=0)),
                {
                    "jobs": map(shapes.job_cost, islice(client.job_costs(), limit)),
                    "instances": map(shapes.instance_cost, islice(client.instance_costs(), limit)),
                },
            )
            return
        bill = client.cost(newest=min(limit or _BILLED, _LARGEST_PAGE))
    console().print(bills.bill(bill))
    if bill.next_jobs_page_token or bill.next_instances_page_token:
        click.echo("the tables have the newest jobs and instances; --limit shows more of them")


def _cost_by(
    by: str, session: CommandSession, limit: int | None, *, as_json: bool, as_csv: bool
) -> None:
    from rich.text import Text

    from eva_client.cli.views import bills, shapes

    with session.client() as client:
        answer = client.cost_by(by)
    shares = bills.first_shares(answer.shares, limit)
    if as_json:
        entries = [shapes.cost_share(by, share) for share in shares]
        print_json({**shapes.bill_sums(answer), f"{by.partition(':')[0]}s": entries})
    elif as_csv:
        click.echo(bills.csv_of_shares(answer, shares), nl=False)
    else:
        console().print(bills.table_of_shares(answer, shares), Text(), bills.totals(answer))


@click.command()
@click.option(
    "--interval",
    type=FiniteRange(min=0.1),
    default=1.0,
    show_default=True,
    help="Seconds between two updates.",
)
@click.option("--once", is_flag=True, help="Show the cluster once and exit.")
@json_option
@address_option
@pass_session
def top(session: CommandSession, interval: float, once: bool, as_json: bool) -> None:
    """Watch instances, tasks and costs."""
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

    patience = Patience(client)
    with Live(_picture(client), console=console(), screen=True, auto_refresh=False) as live:
        while True:
            time.sleep(interval)
            try:
                live.update(_picture(client), refresh=True)
                patience.restore()
            except Unreachable as error:
                patience.pause(error)


def _picture(client: Client) -> RenderableType:
    from eva_client.cli.views.live import render

    return render(client.describe(), list(client.jobs()), client.cost(newest=0))


def _shape(client: Client) -> dict[str, object]:
    from eva_client.cli.views import shapes

    return {
        "cluster": shapes.cluster(client.describe()),
        "jobs": [shapes.job(job) for job in client.jobs()],
        "bill": shapes.bill(client.cost()),
    }
