"""``eva ui``: the pages of the cluster in a browser of this machine."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from collections.abc import Callable, Iterable

import click

from eva_client.cli.session import CommandSession, address_option, pass_session
from eva_client.cli.views.errors import note, report
from eva_wire.values.errors import CannotListen, EvaError

_PORT = 8265
_HINT = "choose another port with --port, or 0 for any that is free"


@click.command("ui")
@click.option(
    "--port",
    type=click.IntRange(min=0, max=65_535),
    help=f"Port of this machine, 0 for any that is free. The default is {_PORT}, or any if another "
    "program has that.",
)
@click.option("--no-browser", is_flag=True, help="Print the address and open no browser.")
@address_option
@pass_session
def ui(session: CommandSession, /, *, port: int | None, no_browser: bool) -> None:
    """Show the cluster's pages in a browser, until it is interrupted.

    Pages come over the connection of this command, so the master opens no port for them. The
    address that is printed logs one browser in, once and within a minute; Enter prints another.

    \b
        eva ui
        eva ui --port 9000 --no-browser
    """  # noqa: D301
    from eva_client.attach.forwarding import Forwarding
    from eva_client.attach.places import pages

    with session.client() as client:
        first = client.login()
        forwarding = Forwarding(client, pages(), report)
        here = _listen(forwarding.listen, port)

        def address(code: str) -> str:
            return f"http://127.0.0.1:{here}/login?code={code}"

        click.echo(address(first.code))
        if first.address:
            note(f"the same code is good at {first.address}/login?code={first.code}")
        note("the address logs one browser in, within a minute; Ctrl-C ends the pages")
        if not no_browser and _has_browser():
            webbrowser.open(address(first.code))
        if sys.stdin.isatty():
            again = threading.Thread(
                target=_print_more,
                args=(sys.stdin, lambda: address(client.login().code)),
                daemon=True,
            )
            again.start()
        try:
            forwarding.run()
        except KeyboardInterrupt:
            note("")


def _listen(listen: Callable[[int, str], int], port: int | None) -> int:
    """Listen on the port that is wanted, or else on the usual one if it is free."""
    if port is not None:
        return listen(port, _HINT)
    try:
        return listen(_PORT, _HINT)
    except CannotListen:
        return listen(0, _HINT)


def _has_browser() -> bool:
    """Whether a browser would get a window of its own, instead of this terminal."""
    if not sys.stdout.isatty() or "SSH_CONNECTION" in os.environ:
        return False
    return sys.platform == "darwin" or bool({"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys())


def _print_more(lines: Iterable[str], address: Callable[[], str]) -> None:
    """Print an address with a new code each time Enter is pressed."""
    for _ in lines:
        try:
            click.echo(address())
        except EvaError as error:
            report(error)
