"""Sums and limits of a calendar month, UTC."""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.model.values import quick
from eva_wire.values.ids import Exact, Millis


@quick
@dataclass(frozen=True, slots=True)
class MonthCharge:
    """Booked charges of an owner's jobs in one calendar month.

    Attributes:
        month_ms: The beginning of the month of the last booking.
        charged: Charges of that month.
    """

    month_ms: Millis = Millis(0)
    charged: Exact = Exact(0)


@dataclass(frozen=True, slots=True)
class MonthLevel:
    """The part of a limit that was used up in a month, as users were told.

    Attributes:
        month_ms: The beginning of the month.
        most: The limit, in micro-dollars.
        percent: The part: 0, 80 or 100.
    """

    month_ms: Millis
    most: int
    percent: int
