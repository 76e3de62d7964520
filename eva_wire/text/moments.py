"""Dates of times, which have none beyond the year 9999."""

from __future__ import annotations

from datetime import UTC, datetime

_FIRST_S = 0
_LAST_S = 253_402_300_799
"""The last second of the year 9999, beyond which there are no dates."""


def date_of(at_ms: int) -> datetime:
    """The date, in UTC, of so many milliseconds since the epoch.

    Times before the epoch and after the year 9999 have none: the nearest date stands for them, as
    sums of times that users state may lie anywhere.
    """
    seconds = max(_FIRST_S, min(_LAST_S, at_ms // 1000))
    return datetime.fromtimestamp(seconds, UTC)
