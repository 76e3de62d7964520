"""Formats money, times and text for people."""

from __future__ import annotations

from math import expm1, inf

from eva_wire.values.durations import span
from eva_wire.values.ids import MILLION


def money(micro_usd: int) -> str:
    """Write an amount in dollars, with the digits that matter at its size."""
    sign = "-" if micro_usd < 0 else ""
    usd = abs(micro_usd) / MILLION
    digits = 2 if usd >= 1 or not usd else 4 if usd >= 0.01 else 6
    return f"{sign}${usd:,.{digits}f}"


def price(micro_usd_per_hour: int) -> str:
    """Write a price per hour, exact to the hundredth of a cent."""
    text = f"{micro_usd_per_hour / MILLION:,.4f}"
    whole, _, cents = text.partition(".")
    return f"${whole}.{cents.rstrip('0'):0<2}/h"


def ago(then_ms: int, now: int) -> str:
    """Say how long ago something was, ``-`` if it has not happened (0)."""
    return f"{span(now - then_ms)} ago" if then_ms else "-"


def share(part: float, whole: float) -> str:
    """Write a part of a whole as a percentage; ``-`` if the whole is 0."""
    return f"{100 * part / whole:.0f}%" if whole else "-"


def count(number: int, thing: str) -> str:
    """Write a number with its noun in singular or plural."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def amount(number: float, thing: str) -> str:
    """Write a number that may be a fraction with its noun in singular or plural."""
    return f"{number:g} {thing}" if number == 1 else f"{number:g} {thing}s"


def is_in(state: str) -> str:
    """Write that something is in a state, such as ``is running`` or ``has failed``."""
    match state:
        case "succeeded" | "failed":
            return f"has {state}"
        case "cancelled":
            return "was cancelled"
        case _:
            return f"is {state}"


def give_or_take(deviation: float) -> str:
    """A standard deviation of logarithms of times, as a share of a time; empty above the time."""
    share = expm1(deviation) if deviation < 1 else inf
    return f"{100 * share:.0f}%" if share <= 1 else ""


def of_feature(feature: str, value: str) -> str:
    """Words for jobs that have one value of a feature."""
    match feature:
        case "owner":
            return "of the owner"
        case "hour":
            return f"submitted between {int(value):02}:00 and {int(value):02}:59 UTC"
        case "cpus":
            return f"with {amount(int(value) / 1000, 'CPU')}"
        case "memory":
            return f"with {int(value) / 1024:g} GiB"
        case "gpus":
            return f"with {amount(int(value), 'GPU')}"
        case _:
            return f"of {feature} {value}"


def plain(text: str) -> str:
    """Make untrusted text safe for a terminal: no escapes, no line breaks."""
    return "".join(char if char.isprintable() else " " for char in text)
