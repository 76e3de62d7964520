"""Durations, sizes and CPU counts as users write them, as exact integers inside.

Each is a pydantic type, which reads values of files, environment variables and flags, and describes
itself in JSON Schema.
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema
from pydantic_core import PydanticCustomError

from eva_wire.values.bounds import MOST_STATED
from eva_wire.values.ids import MILLION

_MILLIS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_MIB = {"MiB": 1, "GiB": 1_024, "TiB": 1_048_576}
_NUMBER = r"[0-9]{1,15}(?:\.[0-9]{1,6})?"
_DURATION = re.compile(rf"^(?:{_NUMBER} ?(?:ms|s|m|h|d) ?)+$")
_DURATION_PART = re.compile(rf"({_NUMBER}) ?(ms|s|m|h|d)")
_DISCOUNT = re.compile(r"([0-9]{1,2}(?:\.[0-9]{1,4})?)%")
_DOLLARS = re.compile(rf"^\$({_NUMBER})$")
_DOLLAR_AMOUNT = re.compile(
    rf"\s*(?:USD|\$)?\s*({_NUMBER})\s*(?:USD|\$|dollars?)?(?:/\s*h\w*)?\s*$"
)
_HOURLY = re.compile(rf"^\$({_NUMBER}) ?/ ?h$")
_SIZE = re.compile(rf"^({_NUMBER}) ?([A-Za-z]+)$")
_BYTES = {"b": 0, "k": 1, "m": 2, "g": 3, "t": 4}
"""Powers of 1,024 by the first letter of other units of size."""
_OTHER_SIZE = re.compile(r"(?:[KMGT](?:i?B?)?|B|bytes?)", re.IGNORECASE)
_OTHER_UNITS = {
    **dict.fromkeys(("us", "µs", "μs", "usec", "microsecond", "microseconds"), "0.001"),
    **dict.fromkeys(("msec", "msecs", "millisecond", "milliseconds"), "1"),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "1000"),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), "60000"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "3600000"),
    **dict.fromkeys(("d", "day", "days"), "86400000"),
    **dict.fromkeys(("w", "wk", "week", "weeks"), "604800000"),
}
"""Milliseconds of units of time that others write."""
_OTHER_DURATION = re.compile(rf"({_NUMBER})\s*([a-zµμ]+),?\s*")
_CLOCK = re.compile(r"(?:([0-9]{1,4})-)?([0-9]{1,4}):([0-9]{2}):([0-9]{2})")
_ISO = re.compile(
    r"P(?:([0-9]{1,4})D)?(?:T(?:([0-9]{1,4})H)?(?:([0-9]{1,4})M)?(?:([0-9]{1,4})S)?)?"
)
_LONGEST_QUOTED = 80
_MOST_IN_GIB = 65_536
"""A number without a unit that is larger is not meant in GiB."""


def parse_duration(text: object) -> int:
    """Read a duration such as ``60s``, ``1.5h``, ``500ms`` or ``1h30m``.

    Returns:
        Milliseconds.

    Raises:
        ValueError: The text is not a duration, has no unit, or is not a whole number of
            milliseconds.
    """
    if not isinstance(text, str):
        seconds = _is_number(text) and float(str(text)) > 0
        raise _refusal("a duration needs a unit", f"{text}s" if seconds else "60s")
    if not _DURATION.match(text.strip()):
        raise _refusal(f"{_cut(text)} is not a duration", _meant_duration(text.strip()))
    total = sum(
        Decimal(number) * _MILLIS[unit] for number, unit in _DURATION_PART.findall(text.strip())
    )
    if total != int(total):
        raise _refusal(f"{_cut(text)} is no whole number of milliseconds", _in_words(total))
    return int(total)


def parse_mib(text: object) -> int:
    """Read a size such as ``16GiB`` or ``512MiB``.

    Returns:
        Mebibytes.

    Raises:
        ValueError: The text is not a size, has no unit, or is not a whole number of mebibytes.
    """
    if not isinstance(text, str):
        plausible = _is_number(text) and 0 < float(str(text)) <= _MOST_IN_GIB
        raise _refusal("a size needs a unit", f"{text}GiB" if plausible else "16GiB or 512MiB")
    match = _SIZE.match(text.strip())
    if match is None:
        raise _refusal(f"{_cut(text)} is not a size", "16GiB or 512MiB")
    number, unit = match.groups()
    if unit not in _MIB:
        raise _refusal(f"{_cut(unit)} is not a unit of size", _meant_size(number, unit))
    total = Decimal(number) * _MIB[unit]
    if total != int(total):
        whole = total.to_integral_value(ROUND_CEILING)
        raise _refusal(f"{_cut(text)} is no whole number of MiB", f"{whole}MiB")
    return int(total)


def parse_milli_cpus(number: object) -> int:
    """Read a number of vCPUs such as ``4`` or ``0.5``.

    Returns:
        Thousandths of a vCPU.

    Raises:
        ValueError: The value is not a number, not finite, negative, or finer than a thousandth.
    """
    if not _is_number(number):
        raise _refusal(f"{_cut(number)} is not a number of vCPUs", _meant_cpus(number))
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
        ValueError: The text is not a percentage, or is 100% or more.
    """
    return _part(text, "a discount", "28%")


def parse_share(text: object) -> int:
    """Read a part of a whole, from ``0%`` to ``100%``.

    Returns:
        Millionths.

    Raises:
        ValueError: The text is not a share.
    """
    return MILLION if text == "100%" else _part(text, "a part of a whole", "50%")


def _part(text: object, what: str, example: str) -> int:
    """Read a percentage below 100, as millionths."""
    match = _DISCOUNT.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        meant = _plain_number(text)
        percent = None if meant is None else meant * 100 if meant < 1 else meant
        likely = percent is not None and 0 < percent < 100
        raise _refusal(
            f"{_cut(text)} is not {what}",
            f"{percent.normalize():f}%" if percent and likely else example,
        )
    return int(Decimal(match[1]) * MILLION / 100)


def parse_dollars(text: object) -> int:
    """Read an amount of money such as ``$500`` or ``$0.25``.

    Returns:
        Micro-dollars.

    Raises:
        ValueError: The text is not an amount, or is negative.
    """
    return _dollars(text, _DOLLARS, "an amount of dollars", "$500")


def parse_dollars_per_hour(text: object) -> int:
    """Read an amount of money per hour such as ``$2/h``.

    Returns:
        Micro-dollars per hour.

    Raises:
        ValueError: The text is not an amount per hour, or is negative.
    """
    return _dollars(text, _HOURLY, "an amount of dollars per hour", "$2/h")


def parse_cap(text: str) -> int:
    """Read the most that a job may cost as users type it in shells and forms, where ``$10`` is 10.

    Returns:
        Micro-dollars.

    Raises:
        ValueError: The text is no such amount.
    """
    amount = parse_dollars(f"${text.strip().removeprefix('$').strip()}")
    if not 0 < amount <= MOST_STATED:
        raise _refusal("a job may cost more than nothing, and at most $1,000,000", "10")
    return amount


def _dollars(text: object, form: re.Pattern[str], what: str, example: str) -> int:
    match = form.match(text.strip()) if isinstance(text, str) else None
    if match is None:
        amount = _DOLLAR_AMOUNT.match(str(text))
        suffix = "/h" if example.endswith("/h") else ""
        meant = f"${amount[1]}{suffix}" if amount else example
        raise _refusal(f"{str(text)[:40]!r} is not {what}, zero or more", meant)
    return int(Decimal(match[1]) * MILLION)


def write_duration(duration_ms: int) -> str:
    """Write milliseconds as a user would, such that `parse_duration` reads them back."""
    if duration_ms == 0:
        return "0s"
    unit = next(unit for unit in ("d", "h", "m", "s", "ms") if duration_ms % _MILLIS[unit] == 0)
    return f"{duration_ms // _MILLIS[unit]}{unit}"


def _meant_duration(text: str) -> str:
    """How a duration is written that others would write so."""
    if clock := _CLOCK.fullmatch(text) or _ISO.fullmatch(text):
        days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        if total := ((days * 24 + hours) * 60 + minutes) * 60 + seconds:
            return _in_words(total * 1_000)
    lower = text.lower()
    parts = _OTHER_DURATION.findall(lower)
    if parts and not _OTHER_DURATION.sub("", lower) and all(u in _OTHER_UNITS for _, u in parts):
        return _in_words(sum(Decimal(number) * Decimal(_OTHER_UNITS[u]) for number, u in parts))
    return "60s, 1.5h, 500ms or 1h30m"


def _in_words(milliseconds: Decimal | int) -> str:
    """A duration as it is to be written: at least a millisecond, rounded up to whole ones."""
    whole = max(1, int(Decimal(milliseconds).to_integral_value(ROUND_CEILING)))
    if whole < 2 * _MILLIS["m"] and whole % _MILLIS["s"] == 0:
        return f"{whole // _MILLIS['s']}s"
    parts = []
    for unit in ("h", "m", "s", "ms"):
        number, whole = divmod(whole, _MILLIS[unit])
        parts += [f"{number}{unit}"] if number else []
    return "".join(parts)


def _meant_size(number: str, unit: str) -> str:
    """How a size is written that has another unit."""
    if not _OTHER_SIZE.fullmatch(unit):
        return "16GiB or 512MiB"
    power = _BYTES[unit[0].lower()]
    if power >= _BYTES["m"]:
        return f"{number}{unit[0].upper()}iB"
    mebibytes = Decimal(number) / 1024 ** (_BYTES["m"] - power)
    return f"{max(1, int(mebibytes.to_integral_value(ROUND_CEILING)))}MiB"


def _meant_cpus(text: object) -> str:
    thousandths = re.fullmatch(r"([0-9]{1,9})m", text.strip()) if isinstance(text, str) else None
    if thousandths and int(thousandths[1]):
        return f"{Decimal(thousandths[1]) / 1_000:f}"
    number = _plain_number(text) if isinstance(text, str) else None
    return f"{number:f}, without quotes" if number else "4 or 0.5"


def _plain_number(value: object) -> Decimal | None:
    """A number above zero, or a text that is one."""
    text = str(value).strip() if isinstance(value, str) or _is_number(value) else ""
    return Decimal(text) if re.fullmatch(_NUMBER, text) and Decimal(text) > 0 else None


def _cut(value: object) -> str:
    """Value that a user wrote, as it is quoted in a message."""
    return (
        repr(value)
        if len(str(value)) <= _LONGEST_QUOTED
        else f"{str(value)[:_LONGEST_QUOTED]!r}..."
    )


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
