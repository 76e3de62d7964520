"""The command notify: receivers that are told what happens."""

from __future__ import annotations

import sys

import click

from eva_client.cli.session import (
    CommandSession,
    address_option,
    console,
    json_option,
    pass_session,
    print_json,
)


@click.group()
def notify() -> None:
    """See how the receivers of notices fare, and try them out. For operators.

    Receivers are set up in the settings of the master, under `notify`.
    """


@notify.command()
@json_option
@address_option
@pass_session
def ls(session: CommandSession, /, *, as_json: bool) -> None:
    """List the receivers, with what waits for each and what was dropped."""
    from eva_client.cli import receiver_table as views

    with session.client() as client:
        answer = client.receivers()
    if as_json:
        print_json({"receivers": [views.shape(each) for each in answer.receivers]})
    else:
        console().print(views.table(answer.receivers, answer.now_ms))


@notify.command()
@click.argument("receiver", required=False, default="", metavar="[RECEIVER]")
@json_option
@address_option
@pass_session
def test(session: CommandSession, /, *, receiver: str, as_json: bool) -> None:
    """Send a notice to RECEIVER, or to all of them, and print what happened.

    The exit code is 1 if one of them did not take it.
    """
    from eva_client.cli import receiver_table as views

    with session.client() as client:
        trials = client.try_receivers(receiver)
    if as_json:
        print_json({"trials": [views.trial_shape(trial) for trial in trials]})
    else:
        for trial in trials:
            click.echo(views.in_words(trial))
        if not trials:
            click.echo("no receivers are set up: see `notify` in the settings of the master")
    if not all(trial.accepted for trial in trials):
        sys.exit(1)
