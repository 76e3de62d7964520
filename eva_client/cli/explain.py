"""The command that explains decisions: explain."""

from __future__ import annotations

import click

from eva_client.cli.session import (
    CommandSession,
    address_option,
    console,
    json_option,
    pass_session,
    print_json,
)


@click.command()
@click.argument("subject", metavar="[JOB|NODE|ROUND|pools]", default="")
@click.option("--round", "newest", is_flag=True, help="Explain the newest round.")
@json_option
@address_option
@pass_session
def explain(session: CommandSession, subject: str, newest: bool, as_json: bool) -> None:
    """Explain why a job runs where it does, why an instance is kept, or why a round chose its plan.

    Without an argument, explain the newest round; `pools` is about instances that stay though they
    are empty. For a fleet in which jobs take turns, a round says how soon everything can be done,
    and what its types are worth.
    """
    from eva_client.cli.views import explanation

    if newest and subject:
        raise click.UsageError("--round is about the newest round: leave out what else is named")
    with session.client() as client:
        answer = client.explain(subject)
    if as_json:
        print_json(explanation.shape(answer))
    else:
        console().print(explanation.explain(answer))
