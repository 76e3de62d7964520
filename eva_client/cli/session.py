"""Common parts of commands: connection, ``--address``, ``--json`` and retries."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

import click

from eva_client.cli.views.errors import note
from eva_wire.text.escapes import escaped_json
from eva_wire.values.errors import EvaError, NotAuthenticated

if TYPE_CHECKING:
    from rich.console import Console

    from eva_client.rpc.master import Client
    from eva_client.settings import ClientConfig

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

_AGAIN = "call the command again, which proves who you are anew"
_PIPE_COLUMNS = 1_000_000
"""Width of a file or pipe, in which no line is wrapped."""
_ENTRIES_AT_ONCE = 100
"""Entries of a list that are written together as JSON."""


@dataclass
class CommandSession:
    """The settings and connection of one run of a command.

    Attributes:
        flags: Settings that were given on the command line.
    """

    flags: dict[str, str] = field(default_factory=dict)

    def config(self) -> ClientConfig:
        """The command's settings; raises `InvalidConfig`."""
        from eva_client.settings import load_client_config

        return load_client_config(self.flags)

    @contextmanager
    def client(self) -> Iterator[Client]:
        """A connection to the master."""
        # Otherwise gRPC also reports failed handshakes on stderr, beside our own message.
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
        from eva_client.rpc.master import Client

        config = self.config()
        authorities = config.authorities()
        if config.identity is None:
            with Client(config.address, authorities=authorities, token=config.secret()) as client:
                yield client
            return
        from eva_client.identities.proving import KeptToken

        kept = KeptToken(config)
        try:
            with Client(config.address, authorities=authorities, token=kept.secret()) as client:
                yield client
        except NotAuthenticated as error:
            kept.forget()
            error.hint = error.hint if kept.proved else _AGAIN
            raise


class FiniteRange(click.FloatRange):
    """A number of the command line: finite, and within a range."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number; fails for one that is none, such as ``nan``."""
        number = float(super().convert(value, param, ctx))
        if not isfinite(number):
            self.fail(f"{value!r} is not a number", param, ctx)
        return number


pass_session = click.make_pass_decorator(CommandSession, ensure=True)


def address_option(command: Decorated) -> Decorated:
    """Add ``--address``, which may stand before or after the command's name."""
    return _setting(
        "--address",
        "HOST:PORT",
        "The master's address; also EVA_ADDRESS, or `address` in your settings.",
    )(command)


def credential_options(command: Decorated) -> Decorated:
    """Add ``--ca-file`` and ``--token-file``. Command lines are visible, so no token is taken."""
    token = _setting(
        "--token-file",
        "FILE",
        "File with your token; also EVA_TOKEN_FILE or EVA_TOKEN, `token_file` or `token`.",
    )
    authority = _setting(
        "--ca-file",
        "FILE",
        "Certificate of the cluster's authority; also EVA_CA_FILE, or `ca_file`.",
    )
    return authority(token(command))


def _setting(flag: str, metavar: str, text: str) -> Callable[[Decorated], Decorated]:
    """An option that is remembered in the session."""
    key = flag.removeprefix("--").replace("-", "_")

    def remember(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
        if value:
            ctx.ensure_object(CommandSession).flags[key] = value

    return click.option(flag, metavar=metavar, expose_value=False, callback=remember, help=text)


def json_option(command: Decorated) -> Decorated:
    """Add the option ``--json`` to a command."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON.")(command)


def print_json(value: Any) -> None:
    """Write a value as JSON to stdout."""
    click.echo(_json(value))


def print_json_lists(value: Mapping[str, Any], lists: Mapping[str, Iterable[Any]]) -> None:
    """Write a JSON object whose last members are lists, entry by entry as they come.

    Each entry is a line, which takes a tenth of the time of one that is laid out.

    Args:
        value: The members before the lists.
        lists: The lists by name, each of them read once, in order.
    """
    start = "{\n"
    for name, member in value.items():
        click.echo(f"{start}  {json.dumps(name)}: {_indented(member, 1)}", nl=False)
        start = ",\n"
    for name, entries in lists.items():
        click.echo(f"{start}  {json.dumps(name)}: [", nl=False)
        start, before = ",\n", "\n"
        for some in _in_parts(entries):
            lines = (escaped_json(json.dumps(entry, ensure_ascii=False)) for entry in some)
            click.echo(before + ",\n".join(f"    {line}" for line in lines), nl=False)
            before = ",\n"
        click.echo("]" if before == "\n" else "\n  ]", nl=False)
    click.echo("\n}")


def _in_parts(entries: Iterable[Any]) -> Iterator[list[Any]]:
    """Entries that are written together."""
    rest = iter(entries)
    while some := list(islice(rest, _ENTRIES_AT_ONCE)):
        yield some


def _indented(value: Any, depth: int) -> str:
    return _json(value).replace("\n", "\n" + "  " * depth)


def _json(value: Any) -> str:
    return escaped_json(json.dumps(value, indent=2, ensure_ascii=False))


def limit_option(command: Decorated) -> Decorated:
    """Add the option ``--limit`` to a command."""
    return click.option(
        "--limit",
        "-n",
        type=click.IntRange(min=1),
        metavar="N",
        help="Show at most so many, the newest ones.",
    )(command)


def duration_ms(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    """Parse the duration of an option to milliseconds; raises `click.BadParameter`."""
    from eva_wire.text.quantities import parse_duration

    if value is None:
        return None
    try:
        return max(1, parse_duration(value))
    except ValueError as failure:
        raise click.BadParameter(f"{failure}; write 30s, 10m or 2h") from failure


def console(*, stderr: bool = False) -> Console:
    """The console for tables, which are as wide as needed in a pipe."""
    from rich.console import Console

    stream = sys.stderr if stderr else sys.stdout
    return Console(
        stderr=stderr,
        width=None if stream.isatty() else _PIPE_COLUMNS,
        highlight=False,
        markup=False,
        emoji=False,
    )


class Dated(Protocol):
    """A message of the master that says what time it is there."""

    @property
    def now_ms(self) -> int:
        """Milliseconds since the epoch; 0 from a master that does not say."""
        ...


def now_of(*messages: Dated) -> int:
    """The master's time as of its newest message, to show how long ago something was there.

    The clock of this machine may be apart from it. Only if the master does not say it counts.
    """
    return max((message.now_ms for message in messages), default=0) or time.time_ns() // 1_000_000


class Patience:
    """Waits for a master that is away, longer each time, up to a limit.

    Args:
        client: The connection. All that wait on it say so once.
    """

    FIRST_PAUSE_S: ClassVar[float] = 0.5
    LONGEST_PAUSE_S: ClassVar[float] = 5.0
    LIMIT_S: ClassVar[float] = 600.0

    def __init__(self, client: Client) -> None:
        self._outages = client.outages
        self._waited_s = 0.0

    def restore(self) -> None:
        """Start with short pauses again, since the master answered."""
        self._waited_s = 0.0

    def pause(self, error: EvaError) -> None:
        """Wait a little; raises `error` when the limit is reached."""
        if self._waited_s >= self.LIMIT_S:
            raise error
        if self._outages.failed() and not self._waited_s:
            note(f"{error.message}; still trying")
        pause_s = min(self.LONGEST_PAUSE_S, self.FIRST_PAUSE_S + self._waited_s / 2)
        self._waited_s += pause_s
        time.sleep(pause_s)
