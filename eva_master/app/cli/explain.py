"""The command that explains decisions: explain."""

from __future__ import annotations

import click

from eva_master.app.cli.session import (
    Session,
    address_option,
    console,
    json_option,
    pass_session,
    print_json,
)


@click.command()
@click.argument("subject", metavar="[JOB|NODE|ROUND|pools]", default="")
@json_option
@address_option
@pass_session
def explain(session: Session, subject: str, as_json: bool) -> None:
    """Explain why a job runs where it does, why an instance is kept, or why a round chose its plan.

    Without an argument, explain the newest round; `pools` is about instances that stay though they
    are empty.
    """
    from eva_master.app.cli.views import explanation

    with session.client() as client:
        answer = client.explain(subject)
    if as_json:
        print_json(explanation.shape(answer))
    else:
        console().print(explanation.told(answer), soft_wrap=True)
