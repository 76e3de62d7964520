"""Prices of instances: of a spot instance the one that is billed, and that with interruptions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from eva_master.app.cli.views.words import count, price

if TYPE_CHECKING:
    from eva_master.adapters.rpc.messages import Hosting, Instance


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
    known = message.HasField("billed_micro_usd_per_hour")
    return message.billed_micro_usd_per_hour if known else message.price_micro_usd_per_hour


def expected(instance: Instance) -> str:
    """Price that plans take an instance to have."""
    known = instance.HasField("expected_micro_usd_per_hour")
    return price(
        instance.expected_micro_usd_per_hour if known else instance.price_micro_usd_per_hour
    )


def standing(types: Sequence[str]) -> list[str]:
    """Instances that are bought to stay, be a task on them or not."""
    return [
        f"{count(number, 'new instance')} of {name} would be bought for a pool, and stay"
        for name, number in Counter(types).items()
    ]
