"""Receivers of notices as a table, in words and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from eva_client.cli.views.grid import Grid
from eva_client.cli.views.words import ago, plain

if TYPE_CHECKING:
    from eva_wire.rpc.messages import NoticeTrial, Receiver


def table(messages: Iterable[Receiver], now: int) -> Grid:
    """A table with one row per receiver."""
    grid = Grid("NAME", "URL", "WAITING", "SENT", "DROPPED", "STATE", drop=("URL", "SENT"))
    for message in messages:
        state = "takes notices"
        if message.reason:
            state = f"fails since {ago(message.failing_ms, now)}: {plain(message.reason)}"
        counts = (message.waiting, message.sent, message.dropped)
        grid.add_row(
            plain(message.name), plain(message.url), *(f"{count:,}" for count in counts), state
        )
    return grid


def shape(message: Receiver) -> dict[str, Any]:
    """A receiver in ``--json``."""
    return {
        "name": message.name,
        "url": message.url,
        "waiting": message.waiting,
        "sent": message.sent,
        "dropped": message.dropped,
        "failing_ms": message.failing_ms or None,
        "reason": message.reason,
        "attention": message.attention,
    }


def in_words(trial: NoticeTrial) -> str:
    """The result of a trial, in a line or two."""
    about = f"{plain(trial.receiver)} ({plain(trial.url)})"
    if trial.accepted:
        return f"{about} took it: {trial.status} after {trial.took_ms:,} ms"
    hint = f"\n  hint: {plain(trial.hint)}" if trial.hint else ""
    return f"{about} did not take it after {trial.took_ms:,} ms: {plain(trial.reason)}{hint}"


def trial_shape(trial: NoticeTrial) -> dict[str, Any]:
    """A trial in ``--json``."""
    return {
        "receiver": trial.receiver,
        "url": trial.url,
        "accepted": trial.accepted,
        "status": trial.status or None,
        "took_ms": trial.took_ms,
        "reason": trial.reason,
        "hint": trial.hint,
    }
