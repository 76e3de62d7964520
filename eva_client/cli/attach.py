"""Commands into a running task: ``eva exec`` and ``eva port-forward``."""

from __future__ import annotations

import os
import re

import click

from eva_client.cli import task_names
from eva_client.cli.session import CommandSession, address_option, pass_session
from eva_client.cli.views.errors import note, report

_PORTS = re.compile(r"([0-9]{1,5})(?::([0-9]{1,5}))?")
_LAST_PORT = 65_535
_REPLICA = click.option(
    "--replica",
    type=click.IntRange(min=0, max=999_999_999),
    help="Of a task with several runs: 0 for its own, else the number of an extra one. If absent, "
    "the first one that runs.",
)


@click.command("exec", context_settings={"allow_interspersed_args": False})
@click.argument("job", metavar="JOB[/TASK]")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@click.option(
    "--tty/--no-tty",
    "-t/-T",
    "wants_tty",
    default=None,
    help="Give the command a terminal; the default where standard input and output are one.",
)
@_REPLICA
@address_option
@click.pass_context
@pass_session
def exec(  # noqa: A001
    session: CommandSession,
    ctx: click.Context,
    /,
    *,
    job: str,
    command: tuple[str, ...],
    wants_tty: bool | None,
    replica: int | None,
) -> None:
    """Run a command in a running task of JOB, a shell if none is named.

    The command has the task's environment, files and limits, and ends before the task is stopped
    or moved. The exit code is the command's.

    \b
        eva exec train-1
        eva exec sweep-7/3 -- nvidia-smi
        eva exec train-1 -- tar c checkpoints > checkpoints.tar
    """  # noqa: D301
    from eva_client.attach.executing import Terminal, execute
    from eva_client.attach.places import NamedRun

    if command and command[0].startswith("-") and command[0] != "--":
        raise click.UsageError(f"{command[0]} is no command: options stand before the job")
    on_terminal = os.isatty(0) and os.isatty(1)
    if wants_tty and not on_terminal:
        raise click.UsageError("--tty needs a terminal as standard input and output; leave it out")
    terminal = Terminal() if (on_terminal if wants_tty is None else wants_tty) else None
    with session.client() as client:
        name, task = task_names.find(client, job)
        arguments = _text(command[1:] if command[:1] == ("--",) else command)
        ended = execute(client, NamedRun(name, task, replica), arguments, terminal)
    if ended.reason:
        note(f"eva: the command was ended: {ended.reason}")
    ctx.exit(ended.code)


def _text(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Check that arguments can be sent, which a name of a file in another encoding cannot."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            shown = argument.encode(errors="replace").decode()
            raise click.UsageError(
                f"the argument {shown!r} is not UTF-8, and commands are sent in UTF-8 alone"
            ) from None
    return arguments


def _ports(_: click.Context, __: click.Parameter, value: str) -> tuple[int, int]:
    """Parse the port of the task, and that of this machine."""
    match = _PORTS.fullmatch(value)
    remote, local = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 0 < remote <= _LAST_PORT or local > _LAST_PORT:
        raise click.BadParameter(
            f"{value!r}: write the task's port, and if another one is wanted on this machine that"
            " one as well, such as 8888 or 8888:9000"
        )
    return remote, local


@click.command("port-forward")
@click.argument("job", metavar="JOB[/TASK]")
@click.argument("ports", metavar="PORT[:LOCAL]", callback=_ports)
@_REPLICA
@address_option
@pass_session
def port_forward(
    session: CommandSession, /, *, job: str, ports: tuple[int, int], replica: int | None
) -> None:
    """Forward connections to a port of a running task of JOB, until it is interrupted.

    Programs on this machine reach the task at 127.0.0.1, by the same port unless LOCAL says
    another; 0 takes any that is free. Only ports on which a process of the task listens are
    reached.

    \b
        eva port-forward notebook 8888
        eva port-forward sweep-7/3 6006:16006
    """  # noqa: D301
    from eva_client.attach.forwarding import Forwarding
    from eva_client.attach.places import NamedRun

    remote, local = ports
    with session.client() as client:
        name, task = task_names.find(client, job)
        forwarding = Forwarding(client, NamedRun(name, task, replica).port(remote), report)
        here = forwarding.listen(local, f"write {remote}:0 for any port that is free")
        forwarding.check()
        note(f"127.0.0.1:{here} is port {remote} of {job}; Ctrl-C ends it")
        try:
            forwarding.run()
        except KeyboardInterrupt:
            note("")
