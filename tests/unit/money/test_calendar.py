"""Days and months worked out of milliseconds are those of the calendar."""

from __future__ import annotations

from datetime import UTC, date, datetime

from eva_master.model.arithmetic.calendar import DAY_MS, date_of, month_of
from eva_wire.values.ids import Millis

EPOCH = date(1970, 1, 1).toordinal()


def test_days_around_the_ends_of_months_and_leap_years_have_their_dates() -> None:
    for year in (1, 4, 99, 100, 400, 1899, 1900, 1970, 1999, 2000, 2023, 2024, 2100, 2400, 9999):
        for month in range(1, 13):
            first = date(year, month, 1).toordinal()
            for ordinal in range(max(1, first - 2), first + 32, 3 if month == 6 else 1):
                if ordinal <= date.max.toordinal():
                    expected = date.fromordinal(ordinal).isoformat()
                    assert date_of(ordinal - EPOCH) == expected


def test_a_month_reaches_from_its_first_day_to_that_of_the_next() -> None:
    for day in range(-800_000, 2_900_000, 3_571):
        began, ends = month_of(Millis(day * DAY_MS + 5))
        assert began <= day * DAY_MS + 5 < ends
        if 1 - EPOCH <= day <= date.max.toordinal() - EPOCH - 31:
            today = date.fromordinal(day + EPOCH).replace(day=1)
            assert began == (today.toordinal() - EPOCH) * DAY_MS
            after = datetime.fromordinal(ends // DAY_MS + EPOCH).replace(tzinfo=UTC)
            assert (after.day, after.month) == (1, today.month % 12 + 1)


def test_years_beyond_four_digits_have_dates() -> None:
    assert date_of(date.max.toordinal() - EPOCH + 1) == "10000-01-01"
    assert date_of(date.max.toordinal() - EPOCH + 1 + 59) == "10000-02-29"
