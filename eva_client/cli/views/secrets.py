"""Secrets as a table and as JSON, without values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from eva_client.cli.views.grid import Grid
from eva_client.cli.views.words import ago, plain

if TYPE_CHECKING:
    from eva_wire.rpc.messages import Secret


def table(messages: Iterable[Secret], now: int) -> Grid:
    """A table with one row per secret."""
    grid = Grid("NAME", "OF", "VERSION", "SET", "STATE", drop=("VERSION", "SET"))
    for message in messages:
        by = f" by {plain(message.set_by)}" if message.tenant else ""
        grid.add_row(
            plain(message.name),
            f"tenant {plain(message.tenant)}" if message.tenant else "you",
            str(message.version),
            f"{ago(message.set_ms, now)}{by}",
            "unreadable: set it again" if message.unreadable else "set",
        )
    return grid


def shape(message: Secret) -> dict[str, Any]:
    """A secret in ``--json``."""
    return {
        "name": message.name,
        "tenant": message.tenant or None,
        "version": message.version,
        "set_ms": message.set_ms,
        "set_by": message.set_by,
        "unreadable": message.unreadable,
    }
