"""Commands on owned nodes: node token, drain, resume, gone, remove."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from eva_client.cli.session import (
    CommandSession,
    address_option,
    json_option,
    now_of,
    pass_session,
    print_json,
)
from eva_client.cli.views.errors import note
from eva_wire.values.errors import InvalidConfig


def _lifetime(_: click.Context, __: click.Parameter, value: str) -> int:
    from eva_wire.text.quantities import parse_duration

    try:
        lifetime_ms = parse_duration(value)
    except ValueError as failure:
        raise click.BadParameter(f"{failure}; write 1h or 2d") from failure
    if lifetime_ms < 1:
        raise click.BadParameter("a token that has expired is of no use")
    return lifetime_ms


def _confirmed(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command its usual parameters: a node's name, and whether to ask."""
    name = click.argument("name")
    yes = click.option("--yes", "-y", is_flag=True, help="Do not ask.")
    return name(yes(json_option(address_option(pass_session(command)))))


@click.group()
def node() -> None:
    """Add machines of your own to the cluster, drain and remove them. For operators.

    An owned node is a machine that you declare under `nodes:` in the master's settings. The cluster
    neither launches nor terminates it. `eva nodes` lists it with the launched instances.
    """


@node.command()
@click.argument("name")
@click.option(
    "--expires",
    "lifetime_ms",
    metavar="DURATION",
    default="1h",
    show_default=True,
    callback=_lifetime,
    help="How long a machine may join with it: 30m, 2d. At most 30 days.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write it to a new file that only you can read, instead of printing it.",
)
@click.option("--overwrite", is_flag=True, help="Replace the file of --out if it exists.")
@json_option
@address_option
@pass_session
def token(  # noqa: PLR0917 - by keyword
    session: CommandSession,
    name: str,
    lifetime_ms: int,
    out: Path | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Create a token that one machine may join with as the node NAME, once.

    Start `eva worker --join TOKEN --type TYPE` there; TOKEN may also be the file of --out. A newer
    token replaces an older one.
    """
    if overwrite and out is None:
        raise click.UsageError("--overwrite is of use only with --out")
    with session.client() as client:
        if out is None:
            made = client.create_node_token(name, lifetime_ms)
        else:
            from eva_wire.files import secret_file

            try:
                # The file comes first: no token is made that could not be kept.
                with secret_file(out, overwrite=overwrite) as file:
                    made = client.create_node_token(name, lifetime_ms)
                    file.write(f"{made.secret}\n".encode())
            except OSError as error:
                raise InvalidConfig(f"{out} cannot be written: {error.strerror}") from error
    where = {"token": made.secret} if out is None else {"file": str(out)}
    if as_json:
        print_json({"node": made.node, "type": made.type, "expires_ms": made.expires_ms, **where})
        return
    minutes = max(0, made.expires_ms - now_of(made)) // 60_000
    if out is not None:
        click.echo(f"wrote the token of {made.node} to {out}; it is good once, for {minutes} min")
        return
    note(f"token of {made.node}, good once, for {minutes} min. This is the only time it is shown:")
    click.echo(made.secret)
    note(f"on the machine: eva worker --join TOKEN --type {made.type}")


@node.command()
@click.argument("name")
@json_option
@address_option
@pass_session
def drain(session: CommandSession, name: str, as_json: bool) -> None:
    """Give the node no new tasks; those that it has finish there."""
    _act(
        session,
        name,
        "drain",
        as_json,
        f"{name} gets no new tasks; `eva node resume {name}` undoes that",
    )


@node.command()
@click.argument("name")
@json_option
@address_option
@pass_session
def resume(session: CommandSession, name: str, as_json: bool) -> None:
    """Give the node tasks again."""
    _act(session, name, "resume", as_json, f"{name} gets tasks")


@node.command()
@_confirmed
def gone(session: CommandSession, name: str, yes: bool, as_json: bool) -> None:
    """Say that nothing runs on the node any more, so that its tasks start elsewhere now.

    Without this they do after the node's `fence_after` and a margin. Say it only if the machine is
    off: a task that still runs there would run twice.
    """
    if not yes:
        click.confirm(f"is {name} switched off, with nothing running on it?", abort=True, err=True)
    _act(session, name, "gone", as_json, f"{name} is gone; its tasks start elsewhere")


@node.command()
@_confirmed
def remove(session: CommandSession, name: str, yes: bool, as_json: bool) -> None:
    """Take an empty node out of the cluster; a machine joins as it with a new token only."""
    if not yes:
        click.confirm(f"remove {name}?", abort=True, err=True)
    _act(session, name, "remove", as_json, f"removed {name}; stop the worker there")


def _act(session: CommandSession, name: str, verb: str, as_json: bool, told: str) -> None:
    with session.client() as client:
        client.act_on_node(name, verb)
    if as_json:
        print_json({"node": name, "done": verb})
    else:
        click.echo(told)
