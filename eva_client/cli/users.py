"""Commands on users: token, whoami."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from eva_wire.values.errors import InvalidConfig, NotFound
from eva_wire.values.users import Role

if TYPE_CHECKING:
    from eva_wire.rpc.messages import CreateTokenResponse, Token

_NEVER = "never"


def _lifetime(_: click.Context, __: click.Parameter, value: str) -> int | None:
    """Parse a lifetime to milliseconds; `None` for no end."""
    from eva_wire.text.quantities import parse_duration

    if value == _NEVER:
        return None
    try:
        lifetime_ms = parse_duration(value)
    except ValueError as failure:
        raise click.BadParameter(f"{failure}; write 30d, 12h or never") from failure
    if lifetime_ms < 1:
        raise click.BadParameter("a token that has expired is of no use")
    return lifetime_ms


@click.group()
def token() -> None:
    """Create, list and revoke the tokens of users. For operators.

    A token states the owner of the jobs submitted with it, and a role. Viewers see everything and
    change nothing. Users also submit jobs and cancel their own. Operators may do everything, with
    other users' jobs and with tokens too.
    """


@token.command()
@click.option("--owner", metavar="NAME", required=True, help="Owner of the jobs submitted with it.")
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    default=Role.USER.value,
    show_default=True,
    help="What it allows.",
)
@click.option(
    "--expires",
    "lifetime_ms",
    metavar="DURATION",
    default="90d",
    show_default=True,
    callback=_lifetime,
    help="Lifetime from now: 30d, 12h; or never.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the secret to a new file that only you can read, instead of printing it.",
)
@click.option("--overwrite", is_flag=True, help="Replace the file of --out if it exists.")
@json_option
@address_option
@pass_session
def create(
    session: CommandSession, /, *, out: Path | None, overwrite: bool, as_json: bool, **asked: Any
) -> None:
    """Create a token and print its secret, which cannot be shown again."""
    from eva_client.cli import token_table
    from eva_client.cli.views import shapes

    if overwrite and out is None:
        raise click.UsageError("--overwrite is of use only with --out")
    with session.client() as client:

        def make() -> CreateTokenResponse:
            return client.create_token(**asked)

        if out is None:
            made = make()
        else:
            made = _written(make, client.revoke_token, out, overwrite=overwrite)
    if as_json:
        where = {"secret": made.secret} if out is None else {"file": str(out)}
        print_json({**shapes.token(made.token), **where})
        return
    about = token_table.token(made.token, now_of(made.token))
    if out is not None:
        click.echo(f"wrote {about} to {out}")
        return
    note(f"{about}. This is the only time that it is shown:")
    click.echo(made.secret)


def _written(
    make: Callable[[], CreateTokenResponse],
    revoke: Callable[[str], None],
    out: Path,
    *,
    overwrite: bool,
) -> CreateTokenResponse:
    """Make a token whose secret is in a file, or none that is of use."""
    from eva_wire.files import secret_file

    made = None
    try:
        # The file comes first: no token is made whose secret could not be kept.
        with secret_file(out, overwrite=overwrite) as file:
            made = make()
            file.write(f"{made.secret}\n".encode())
    except OSError as error:
        if made is not None:
            revoke(made.token.id)
        raise InvalidConfig(f"{out} cannot be written: {error.strerror}") from error
    return made


@token.command()
@json_option
@address_option
@pass_session
def ls(session: CommandSession, as_json: bool) -> None:
    """List all tokens, oldest first."""
    from eva_client.cli import token_table
    from eva_client.cli.views import shapes

    with session.client() as client:
        issued = client.tokens()
    if as_json:
        print_json({"tokens": [shapes.token(token) for token in issued]})
    else:
        console().print(token_table.tokens(issued, now_of(*issued)))


@token.command()
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@address_option
@pass_session
def revoke(session: CommandSession, ids: tuple[str, ...], yes: bool) -> None:
    """Revoke tokens at once and for ever. Jobs submitted with them continue.

    Tokens that are refused do not hold up the others; the exit code is 1 then.
    """
    from eva_client.cli import token_table

    with refusals() as refused, session.client() as client:
        chosen = list(ids)
        if not yes:
            issued = {token.id: token for token in client.tokens()}
            now = now_of(*issued.values())
            named = refused.each(partial(_find, issued), ids)
            chosen = [token.id for token in named]
            lines = "; ".join(token_table.token(token, now) for token in named)
            refused.ask(lines and f"revoke {lines}?", yes=yes)

        def end(token_id: str) -> None:
            client.revoke_token(token_id)
            click.echo(f"revoked {token_id}")

        refused.each(end, chosen)


@click.command()
@json_option
@address_option
@pass_session
def whoami(session: CommandSession, as_json: bool) -> None:
    """Show your user and role as the master sees them."""
    from eva_client.cli import token_table
    from eva_client.cli.views import shapes

    with session.client() as client:
        mine = client.who_am_i()
    if as_json:
        print_json(shapes.token(mine))
    else:
        click.echo(f"{mine.owner}, with role {mine.role}: {token_table.token(mine, now_of(mine))}")


def _find(known: dict[str, Token], key: str) -> Token:
    if key not in known:
        raise NotFound(f"there is no token {key!r}", hint="`eva token ls` shows all tokens")
    return known[key]
