"""The ``eva`` command.

Commands are imported when they are used, and import gRPC or a database only when needed, so that
``eva --help`` is fast.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from io import TextIOWrapper
from typing import Any

import click

from eva_client.cli.other_names import advice
from eva_client.cli.output import failing_output, fill_closed_streams
from eva_client.cli.session import CommandSession, address_option, credential_options
from eva_client.cli.views.errors import exit_code, report
from eva_wire import VERSION
from eva_wire.values.errors import EvaError, of_file

_OPERATORS = "Operators"
GROUPS: Mapping[str, Mapping[str, str]] = {
    "Jobs": {
        "submit": "submit",
        "run": "run",
        "wait": "wait",
        "plan": "jobs",
        "ls": "jobs",
        "status": "jobs",
        "explain": "explain",
        "cancel": "jobs",
        "retry": "retry",
        "suspend": "suspending",
        "resume": "suspending",
        "move": "partitions",
        "estimates": "estimates",
        "schema": "files",
    },
    "Files and shells": {
        "logs": "logs",
        "get": "getting",
        "rm": "removing",
        "secret": "secrets",
        "exec": "attach",
        "port-forward": "attach",
        "completion": "completion",
    },
    "Cluster and money": {
        "ui": "ui",
        "top": "cluster",
        "events": "events",
        "nodes": "cluster",
        "cost": "cluster",
        "tenants": "tenants",
        "partitions": "partitions",
        "interference": "learned",
        "config": "files",
        "whoami": "users",
        "connect": "connecting",
    },
    _OPERATORS: {
        "drain": "cluster",
        "gc": "removing",
        "node": "nodes",
        "notify": "notify",
        "token": "users",
    },
}
"""The module of each command of users, by its group, in the order of the help page."""
_COMMANDS = {name: module for group in GROUPS.values() for name, module in group.items()}
HEADINGS: Mapping[str, str] = {
    "eva_master": _OPERATORS,
    "eva_lab": "Researchers",
    "eva_worker": "On an instance",
}
"""The group of commands that other packages add."""
_PLUGINS = "eva.commands"
"""The group of their entry points."""


class _Commands(click.Group):
    """Finds commands here and in the entry point group ``eva.commands``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_COMMANDS, *sorted(_plugins(ctx).keys() - _COMMANDS.keys())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name in _COMMANDS:
            module = import_module(f"{__name__}.{_COMMANDS[cmd_name]}")
            command: click.Command = getattr(module, cmd_name.replace("-", "_"))
            return command
        plugin = _plugins(ctx).get(cmd_name)
        return None if plugin is None else _loaded(plugin)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        sections = {heading: list(commands) for heading, commands in GROUPS.items()}
        for name in self.list_commands(ctx)[len(_COMMANDS) :]:
            package = _plugins(ctx)[name].module.partition(".")[0]
            sections.setdefault(HEADINGS.get(package, "Of other packages"), []).append(name)
        longest = max(len(name) for names in sections.values() for name in names)
        for heading, names in sections.items():
            with formatter.section(heading):
                limit = formatter.width - 6 - longest
                commands = ((name, self.get_command(ctx, name)) for name in names)
                formatter.write_dl(
                    [
                        (name.ljust(longest), command.get_short_help_str(limit))
                        for name, command in commands
                        if command is not None
                    ]
                )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if args[0].startswith("-"):
                raise
            hint = advice(args[0], self.list_commands(ctx))
            message = f"Eva has no command {args[0]!r}" + (f": {hint}" if hint else "")
            raise click.UsageError(message, ctx) from error

    def main(self, *args: Any, **options: Any) -> Any:
        fill_closed_streams()
        with failing_output():
            return super().main(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        _write_anything()
        try:
            answer = super().invoke(ctx)
            sys.stdout.flush()
        except EvaError as error:
            report(error)
            ctx.exit(exit_code(error))
        except OSError as error:
            if error.filename is None or error.errno == errno.EPIPE:
                raise
            report(of_file(error))
            ctx.exit(1)
        except KeyboardInterrupt:
            click.echo(err=True)
            ctx.exit(130)
        return answer


def _write_anything() -> None:
    """Have characters that the terminal's encoding lacks written as escapes, not fail."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _plugins(ctx: click.Context) -> dict[str, EntryPoint]:
    """Commands of other packages, looked up once in a call: that takes as long as some imports."""
    plugins: dict[str, EntryPoint] | None = ctx.meta.get(_PLUGINS)
    if plugins is None:
        plugins = {point.name: point for point in entry_points(group=_PLUGINS)}
        ctx.meta[_PLUGINS] = plugins
    return plugins


def _loaded(plugin: EntryPoint) -> click.Command:
    """Load a command of another package. If it is broken, the other commands still work."""
    try:
        command: click.Command = plugin.load()
    except Exception as failure:
        return _broken(plugin, failure)
    return command


def _broken(plugin: EntryPoint, failure: Exception) -> click.Command:
    reason = f"{plugin.value} cannot be loaded: {failure}"

    @click.command(
        plugin.name,
        help=f"(broken: {reason})",
        add_help_option=False,
        context_settings={"ignore_unknown_options": True},
    )
    @click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
    def broken(arguments: tuple[str, ...]) -> None:  # noqa: ARG001
        raise EvaError(reason, hint="install eva-scheduler again") from failure

    return broken


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(VERSION, prog_name="eva")
@address_option
@credential_options
@click.pass_context
def main(ctx: click.Context) -> None:
    """Run batch and ML jobs on EC2 for the least money.

    Settings are read from the file that EVA_CONFIG names, else from
    $XDG_CONFIG_HOME/eva/config.yaml, else from the file that `eva up` has written for you.
    """
    ctx.ensure_object(CommandSession)
