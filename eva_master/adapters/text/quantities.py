"""Durations, sizes and CPU counts as users write them, as exact integers inside.

Each is a pydantic type, which reads values of files, environment variables and flags, and describes
itself in JSON Schema.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticCustomError

from eva_master.model.ids import MILLION

_MILLIS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MIB = {"MiB": 1, "GiB": 1_024, "TiB": 1_048_576}
_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,6})?"
_DURATION = re.compile(rf"^(?:{_NUMBER} ?(?:ms|s|m|h|d) ?)+$")
_DURATION_PART = re.compile(rf"({_NUMBER}) ?(ms|s|m|h|d)")
_DISCOUNT = re.compile(r"([0-9]{1,2}(?:\.[0-9]{1,4})?)%")
_DOLLARS = re.compile(rf"^\$({_NUMBER})$")
_HOURLY = re.compile(rf"^\$({_NUMBER}) ?/ ?h$")
_SIZE = re.compile(rf"^({_NUMBER}) ?([A-Za-z]+)$")


def parse_duration(text: object) -> int:
    """Read a duration such as ``60s``, ``1.5h``, ``500ms`` or ``1h30m``.

    Returns:
        Milliseconds.

    Raises:
        ValueError: It is not a duration, has no unit, or is not a whole number of milliseconds.
    """
    if not isinstance(text, str):
        raise _refusal("a duration needs a unit", f"{text}s" if _is_number(text) else "60s")
    if not _DURATION.match(text.strip()):
        raise _refusal(f"{text!r} is not a duration", "60s, 1.5h, 500ms or 1h30m")
    total = sum(
        Decimal(number) * _MILLIS[unit] for number, unit in _DURATION_PART.findall(text.strip())
    )
    if total != int(total):
        raise _refusal(f"{text!r} is no whole number of milliseconds", "500ms")
    return int(total)


def parse_mib(text: object) -> int:
    """Read a size such as ``16GiB`` or ``512MiB``.

    Returns:
        Mebibytes.

    Raises:
        ValueError: It is not a size, has no unit, or is not a whole number of mebibytes.
    """
    if not isinstance(text, str):
        raise _refusal("a size needs a unit", f"{text}GiB" if _is_number(text) else "16GiB")
    match = _SIZE.match(text.strip())
    if match is None:
        raise _refusal(f"{text!r} is not a size", "16GiB or 512MiB")
    number, unit = match.groups()
    if unit not in _MIB:
        guess = next((known for known in _MIB if known[0] == unit[0].upper()), "GiB")
        raise _refusal(f"{unit!r} is not a unit of size", f"{number}{guess}")
    total = Decimal(number) * _MIB[unit]
    if total != int(total):
        raise _refusal(f"{text!r} is no whole number of MiB", "512MiB")
    return int(total)


def parse_milli_cpus(number: object) -> int:
    """Read a number of vCPUs such as ``4`` or ``0.5``.

    Returns:
        Thousandths of a vCPU.

    Raises:
        ValueError: It is not a number, not finite, negative, or finer than a thousandth.
    """
    if not _is_number(number):
        raise _refusal(f"{number!r} is not a number of vCPUs", "4 or 0.5")
    value = Decimal(repr(number))
    if not value.is_finite() or value < 0:
        raise _refusal(f"{number} is not a number of vCPUs", "4 or 0.5")
    if value > 1_000_000:
        raise _refusal(f"no machine has {number:g} vCPUs", "4 or 0.5")
    milli = value * 1_000
    if milli != int(milli):
        raise _refusal("vCPUs are counted in thousandths", "0.125")
    return int(milli)


def parse_discount(text: object) -> int:
    """Read a discount such as ``28%`` or ``67.5%``.

    Returns:
        Millionths.

    Raises:
        ValueError: It is not one, or it is 100% or more.
    """
    return _part(text, "a discount", "28%")


def parse_share(text: object) -> int:
    """Read a part of a whole, from ``0%`` to ``100%``.

    Returns:
        Millionths.

    Raises:
        ValueError: It is not one.
    """
    return MILLION if text == "100%" else _part(text, "a part of a whole", "50%")


def _part(text: object, what: str, example: str) -> int:
    """Read a percentage below 100, as millionths."""
    match = _DISCOUNT.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise _refusal(f"{text!r} is not {what}", example)
    return int(Decimal(match[1]) * MILLION / 100)


def parse_dollars(text: object) -> int:
    """Read an amount of money such as ``$500`` or ``$0.25``.

    Returns:
        Micro-dollars.

    Raises:
        ValueError: It is not one, or is negative.
    """
    return _dollars(text, _DOLLARS, "an amount of dollars", "$500")


def parse_dollars_per_hour(text: object) -> int:
    """Read an amount of money per hour such as ``$2/h``.

    Returns:
        Micro-dollars per hour.

    Raises:
        ValueError: It is not one, or is negative.
    """
    return _dollars(text, _HOURLY, "an amount of dollars per hour", "$2/h")


def _dollars(text: object, form: re.Pattern[str], what: str, example: str) -> int:
    match = form.match(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise _refusal(f"{str(text)[:40]!r} is not {what}, zero or more", example)
    return int(Decimal(match[1]) * MILLION)


def write_duration(duration_ms: int) -> str:
    """Write milliseconds as a user would, such that `parse_duration` reads them back."""
    if duration_ms == 0:
        return "0s"
    unit = next(unit for unit in ("d", "h", "m", "s", "ms") if duration_ms % _MILLIS[unit] == 0)
    return f"{duration_ms // _MILLIS[unit]}{unit}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _refusal(message: str, example: str) -> PydanticCustomError:
    return PydanticCustomError(
        "quantity", "{message}", {"message": message, "hint": f"write {example}"}
    )


Duration = Annotated[
    int,
    BeforeValidator(parse_duration),
    PlainSerializer(write_duration, return_type=str, when_used="json"),
    WithJsonSchema(
        {"type": "string", "pattern": _DURATION.pattern, "examples": ["60s", "1.5h", "500ms"]}
    ),
]
"""Milliseconds, written with a unit."""

Size = Annotated[
    int,
    BeforeValidator(parse_mib),
    WithJsonSchema(
        {
            "type": "string",
            "pattern": rf"^{_NUMBER} ?(?:MiB|GiB|TiB)$",
            "examples": ["16GiB", "512MiB"],
        }
    ),
]
"""Mebibytes, written with a unit."""

Discount = Annotated[
    int,
    BeforeValidator(parse_discount),
    PlainSerializer(lambda ppm: f"{Decimal(ppm) * 100 / MILLION:f}%", when_used="json"),
    WithJsonSchema({"type": "string", "pattern": f"^{_DISCOUNT.pattern}$", "examples": ["28%"]}),
]
"""Millionths, written as a percentage."""

Share = Annotated[
    int,
    BeforeValidator(parse_share),
    PlainSerializer(lambda ppm: f"{Decimal(ppm) * 100 / MILLION:f}%", when_used="json"),
    WithJsonSchema(
        {"type": "string", "pattern": f"^(100%|{_DISCOUNT.pattern})$", "examples": ["50%"]}
    ),
]
"""Millionths of a whole, written as a percentage."""

MilliCpus = Annotated[
    int,
    BeforeValidator(parse_milli_cpus),
    WithJsonSchema({"type": "number", "exclusiveMinimum": 0, "examples": [4, 0.5]}),
]
"""Thousandths of a vCPU, written as a number of vCPUs."""

Dollars = Annotated[
    int,
    BeforeValidator(parse_dollars),
    WithJsonSchema({"type": "string", "pattern": _DOLLARS.pattern, "examples": ["$500"]}),
]
"""Micro-dollars, written in dollars."""

DollarsPerHour = Annotated[
    int,
    BeforeValidator(parse_dollars_per_hour),
    WithJsonSchema({"type": "string", "pattern": _HOURLY.pattern, "examples": ["$2/h"]}),
]
"""Micro-dollars per hour, written in dollars."""
