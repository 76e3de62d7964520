"""Command of the feed: events."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from eva_client.cli.session import (
    CommandSession,
    Patience,
    address_option,
    json_option,
    pass_session,
)
from eva_wire.text.escapes import escaped_json, visible
from eva_wire.text.moments import date_of
from eva_wire.values.errors import Unreachable

if TYPE_CHECKING:
    from eva_wire.rpc.messages import FeedEvent

_KIND_WIDTH = 9


@click.command()
@click.argument("subject", required=False, default="", metavar="[JOB|NODE]")
@click.option("--follow", "-f", is_flag=True, help="Go on with what happens from now on.")
@click.option(
    "--last",
    "-n",
    type=click.IntRange(0, 1_000),
    default=50,
    show_default=True,
    metavar="N",
    help="Begin with the N newest events; 0 for all that are kept.",
)
@click.option(
    "--before",
    type=click.IntRange(1),
    metavar="NUMBER",
    help="Only events before the one of this number, which --json tells.",
)
@json_option
@address_option
@pass_session
def events(
    session: CommandSession,
    subject: str,
    *,
    follow: bool,
    last: int,
    before: int | None,
    as_json: bool,
) -> None:
    """Show what happened: to the cluster, to JOB, or on NODE, oldest first.

    JOB is an id, or the name of your newest job of that name; NODE is an id of `eva nodes`. Events
    are kept for the master's `history_kept`, and their times are UTC. With --json each event is a
    line.
    """
    if before and follow:
        raise click.UsageError("--before excludes --follow")
    with session.client() as client:
        patience, after = Patience(client), 0
        while True:
            try:
                first = 0 if after else last
                for event in client.events(
                    subject, after=after, before=before or 0, last=first, follow=follow
                ):
                    patience.restore()
                    click.echo(_as_json(event) if as_json else _line(event))
                    after = event.number
            except Unreachable as error:
                if not follow:
                    raise
                patience.pause(error)
            else:
                return


def _line(event: FeedEvent) -> str:
    moment = date_of(event.at_ms).strftime("%Y-%m-%d %H:%M:%S")
    subject = event.task or event.job or event.instance or "cluster"
    return f"{moment}  {event.kind:{_KIND_WIDTH}}  {subject}: {visible(event.text)}"


def _as_json(event: FeedEvent) -> str:
    return escaped_json(
        json.dumps(
            {
                "number": event.number,
                "at_ms": event.at_ms,
                "kind": event.kind,
                "job": event.job,
                "task": event.task,
                "instance": event.instance,
                "owner": event.owner,
                "text": event.text,
            },
            ensure_ascii=False,
        )
    )
