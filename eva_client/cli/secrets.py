"""The command secret: values that tasks get as environment variables."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

import click

from eva_client.cli.refusals import refusals
from eva_client.cli.session import (
    CommandSession,
    address_option,
    console,
    json_option,
    now_of,
    pass_session,
    print_json,
)
from eva_client.cli.views.errors import note
from eva_wire.values.bounds import MOST_SECRET_BYTES
from eva_wire.values.errors import InvalidSecret, of_file

_tenant_option = click.option(
    "--tenant", metavar="TENANT", default="", help="Of all users of a tenant. For operators."
)


@click.group()
def secret() -> None:
    """Set, list and remove secrets, such as tokens of other services.

    A job that names one under `secrets` has it as an environment variable of its tasks. A user's
    own comes before that of the tenant. No command shows a value.
    """


@secret.command("set")
@click.argument("name", metavar="NAME")
@click.option(
    "--file",
    "source",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Read the value from a file.",
)
@_tenant_option
@address_option
@pass_session
def set_(session: CommandSession, /, *, name: str, source: Path | None, tenant: str) -> None:
    """Set a secret to the value on standard input, or to one that you are asked for.

    The value is text, without the line feed at its end. Tasks that run keep the value that they
    have; later attempts get the new one.
    """
    from eva_wire.service.dumps import leave_no_dumps

    leave_no_dumps()
    value = _value(name, source)
    with session.client() as client:
        answer = client.set_secret(name, value, tenant)
    whose = f" for tenant {tenant}" if tenant else ""
    if answer.unchanged:
        click.echo(f"{name} has that value already{whose}")
        return
    click.echo(f"set {name}{whose}")
    if answer.job_count:
        users = _jobs(answer.jobs, answer.job_count)
        note(f"used by {users}: tasks that run keep what they have")


@secret.command()
@_tenant_option
@json_option
@address_option
@pass_session
def ls(session: CommandSession, /, *, tenant: str, as_json: bool) -> None:
    """List your secrets and those of your tenant, by name. No value is shown."""
    from eva_client.cli.views import secrets as views

    with session.client() as client:
        listed = client.secrets(tenant)
    if as_json:
        print_json({"secrets": [views.shape(each) for each in listed]})
    else:
        console().print(views.table(listed, now_of(*listed)))


@secret.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@_tenant_option
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@address_option
@pass_session
def rm(session: CommandSession, /, *, names: tuple[str, ...], tenant: str, yes: bool) -> None:
    """Remove secrets. Tasks that run keep theirs; later attempts wait until it is set again.

    Names that are refused do not hold up the others; the exit code is 1 then.
    """
    whose = f" of tenant {tenant}" if tenant else ""
    with refusals() as refused, session.client() as client:
        refused.ask(f"remove {', '.join(names)}{whose}?", yes=yes)

        def remove(name: str) -> None:
            answer = client.remove_secret(name, tenant)
            click.echo(f"removed {name}{whose}")
            if answer.job_count:
                users = _jobs(answer.jobs, answer.job_count)
                note(f"{name}: tasks of {users} that begin from now on wait until it is set again")

        refused.each(remove, names)


def _jobs(names: Sequence[str], count: int) -> str:
    more = count - len(names)
    rest = f" and {more} other{'' if more == 1 else 's'}" if more else ""
    return ", ".join(names) + rest


def _value(name: str, source: Path | None) -> bytes:
    """The value of a secret, from a file, standard input or the terminal.

    Raises:
        InvalidSecret: The value is too long.
    """
    if source is not None:
        try:
            with source.open("rb") as file:
                return _bounded(name, file)
        except OSError as error:
            raise of_file(error) from error
    if _asks():
        typed: str = click.prompt(name, hide_input=True, err=True)
        return typed.encode(errors="surrogateescape")
    return _bounded(name, sys.stdin.buffer)


def _asks() -> bool:
    """Whether a user sits at standard input."""
    return sys.stdin.isatty()


def _bounded(name: str, file: BinaryIO) -> bytes:
    value = file.read(MOST_SECRET_BYTES + 2)
    value = value.removesuffix(b"\n")
    if len(value) > MOST_SECRET_BYTES:
        raise InvalidSecret(
            f"the value of {name} has more than {MOST_SECRET_BYTES:,} bytes",
            hint="keep large files in the object store",
        )
    return value
