"""Groups of commands to which clouds add commands of their own."""

from __future__ import annotations

from importlib import import_module

import click


class ExtendedGroup(click.Group):
    """A group with its own commands, and those of clouds that begin with its name."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Its own commands, then those of clouds."""
        return [*super().list_commands(ctx), *sorted(self._added())]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Find a command; one of a cloud is imported now."""
        target = self._added().get(cmd_name)
        return loaded(target) if target else super().get_command(ctx, cmd_name)

    def _added(self) -> dict[str, str]:
        from eva_master.app.clouds import cloud_commands

        prefix = f"{self.name} "
        return {
            command.removeprefix(prefix): target
            for command, target in cloud_commands().items()
            if command.startswith(prefix)
        }


def loaded(target: str) -> click.Command:
    """Import a command, from ``module:attribute``."""
    module, _, attribute = target.partition(":")
    command: click.Command = getattr(import_module(module), attribute)
    return command
