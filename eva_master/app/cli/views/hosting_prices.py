"""The two prices of a spot instance: what is billed, and that with expected interruptions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eva_master.app.cli.views.words import price

if TYPE_CHECKING:
    from eva_master.adapters.rpc.messages import Hosting


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
    """What is billed for an instance, in micro-dollars per hour."""
    known = message.HasField("billed_micro_usd_per_hour")
    return message.billed_micro_usd_per_hour if known else message.price_micro_usd_per_hour
