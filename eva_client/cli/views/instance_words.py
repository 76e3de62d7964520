"""Words about instances: their prices, on spot with interruptions, and why they stay or go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from eva_client.cli.views.words import count, plain, price
from eva_wire.values.durations import span

if TYPE_CHECKING:
    from eva_wire.rpc.messages import Hosting, Instance


def costs(message: Hosting) -> str:
    """The price of an instance; of a spot instance both of its prices, by their names."""
    asked = message.price_micro_usd_per_hour
    if not message.HasField("billed_micro_usd_per_hour"):
        return price(asked)
    return (
        f"{price(asked)} with expected interruptions"
        f" (billed {price(message.billed_micro_usd_per_hour)})"
    )


def billed(message: Hosting) -> int:
    """Price billed for an instance, in micro-dollars per hour."""
    stated = message.HasField("billed_micro_usd_per_hour")
    return message.billed_micro_usd_per_hour if stated else message.price_micro_usd_per_hour


def expected(instance: Instance) -> str:
    """Price that plans take an instance to have."""
    stated = instance.HasField("expected_micro_usd_per_hour")
    return price(
        instance.expected_micro_usd_per_hour if stated else instance.price_micro_usd_per_hour
    )


def standing(types: Sequence[str]) -> list[str]:
    """Instances that are bought to stay, be a task on them or not."""
    return [
        f"{count(number, 'new instance')} of {name} would be bought for a pool, and stay"
        for name, number in Counter(types).items()
    ]


def note(instance: Instance, now_ms: int) -> str:
    """The note of an instance.

    Args:
        instance: Which.
        now_ms: The master's time.
    """
    present = instance.state in ("launching", "up", "ready")
    if instance.state == "ready" and not instance.connected:
        return "its worker is away"
    if instance.draining and present:
        moves = "; its tasks move elsewhere" if instance.drain_moves else ""
        return f"draining: {plain(instance.draining)}{moves}"
    if instance.kept_until_ms and present:
        whom = f"for {plain(instance.kept_for)}" if instance.kept_for else "until the next plan"
        return f"empty, kept {whom}, for {span(instance.kept_until_ms - now_ms)} more at most"
    return plain(instance.reason)
