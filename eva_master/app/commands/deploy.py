"""``eva deploy``: a cluster in a cloud account; each cloud adds its command."""

from __future__ import annotations

import click

from eva_master.app.commands.extended_group import ExtendedGroup


@click.group(cls=ExtendedGroup)
def deploy() -> None:
    """Make a cluster in a cloud account, or change one."""
