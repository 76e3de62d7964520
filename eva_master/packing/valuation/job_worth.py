"""Assumed worth of a job whose user does not state it."""

from __future__ import annotations

from eva_master.model.accounting.worth import MOST_WORTH, Worth
from eva_wire.values.ids import MILLIS_PER_HOUR


def worth_of(stated: Worth | None, price_per_hour: int, length_ms: int | None) -> Worth | None:
    """Worth of a job, stated or assumed.

    An unstated worth is reservation price times length if the job is done as early as possible,
    which is after its length, and falls by that amount over one more length.

    Args:
        stated: The worth stated by its user.
        price_per_hour: Its reservation price, in micro-dollars per hour.
        length_ms: Its duration alone.

    Returns:
        `None` if neither a worth is stated nor the length known.
    """
    if stated is not None or length_ms is None:
        return stated
    amount = 2 * price_per_hour * length_ms // MILLIS_PER_HOUR
    return Worth(min(MOST_WORTH, amount), loses_per_hour=price_per_hour)
