"""Tokens of users, as a table and in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from eva_client.cli.views.grid import Grid
from eva_client.cli.views.words import ago, plain
from eva_wire.values.durations import span

if TYPE_CHECKING:
    from eva_wire.rpc.messages import Token


def tokens(messages: Iterable[Token], now: int) -> Grid:
    """A table with one row per token."""
    table = Grid("TOKEN", "OWNER", "ROLE", "AGE", "STATE", drop=("AGE",))
    for message in messages:
        table.add_row(
            message.id,
            plain(message.owner),
            message.role,
            span(now - message.created_ms),
            _validity(message, now),
        )
    return table


def token(message: Token, now: int) -> str:
    """A token's owner, role and validity as text."""
    return (
        f"token {message.id} of {plain(message.owner)} ({message.role}), {_validity(message, now)}"
    )


def _validity(message: Token, now: int) -> str:
    if message.revoked_ms:
        return f"revoked {ago(message.revoked_ms, now)}"
    if not message.expires_ms:
        return "does not expire"
    if message.expires_ms <= now:
        return f"expired {ago(message.expires_ms, now)}"
    return f"expires in {span(message.expires_ms - now)}"
