"""The calendar in UTC, worked out of milliseconds since 1970 without a clock."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from eva_wire.values.ids import Millis

DAY_MS = 86_400_000
_MARCH_OF_YEAR_0 = 719_468
"""Days from the first of March of the year 0 to 1970-01-01."""


def parts_by_day(amount: int, since: Millis, until: Millis) -> Iterator[tuple[int, int]]:
    """Divide an amount that grew evenly over a stretch of time by day, UTC.

    The parts add up to the amount exactly. An amount of no time belongs to the day of `until`.

    Args:
        amount: The amount.
        since: Beginning of the stretch.
        until: Its end.

    Yields:
        Each day, as days since 1970-01-01, with its part.
    """
    if until <= since:
        yield until // DAY_MS, amount
        return
    counted = 0
    for day in range(since // DAY_MS, (until - 1) // DAY_MS + 1):
        upto = amount * (min(until, (day + 1) * DAY_MS) - since) // (until - since)
        yield day, upto - counted
        counted = upto


@lru_cache(maxsize=16)
def date_of(day: int) -> str:
    """A day as `YYYY-MM-DD`.

    Args:
        day: Days since 1970-01-01.
    """
    year, month = _year_and_month(day)
    return f"{year:04}-{month:02}-{day - _first_day(year, month) + 1:02}"


def moment_of(at_ms: int) -> str:
    """A moment as `YYYY-MM-DD HH:MM:SS`, UTC."""
    day, rest_ms = divmod(at_ms, DAY_MS)
    minutes, seconds = divmod(rest_ms // 1_000, 60)
    return f"{date_of(day)} {minutes // 60:02}:{minutes % 60:02}:{seconds:02}"


def month_of(now: Millis) -> tuple[Millis, Millis]:
    """The calendar month of a moment, UTC: its first moment, and that of the next month."""
    year, month = _year_and_month(now // DAY_MS)
    first = _first_day(year, month)
    after = _first_day(year + month // 12, month % 12 + 1)
    return Millis(first * DAY_MS), Millis(after * DAY_MS)


def _first_day(year: int, month: int) -> int:
    """Days from 1970-01-01 to the first day of a month."""
    year, month = (year, month - 3) if month > 2 else (year - 1, month + 9)  # from March on
    leap_days = year // 4 - year // 100 + year // 400
    return 365 * year + leap_days + (153 * month + 2) // 5 - _MARCH_OF_YEAR_0


def _year_and_month(day: int) -> tuple[int, int]:
    """The month of a day that is so many days after 1970-01-01."""
    # Counted from March on, leap days are the last of a year, of a century and of 400 years.
    era, day = divmod(day + _MARCH_OF_YEAR_0, 146_097)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    year += 400 * era
    return (year, month + 3) if month < 10 else (year + 1, month - 9)
