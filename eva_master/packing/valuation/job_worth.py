"""What a job is worth whose user may not say so."""

from __future__ import annotations

from eva_master.model.accounting.worth import MOST_WORTH, Worth
from eva_master.model.ids import MILLIS_PER_HOUR


def worth_of(stated: Worth | None, price_per_hour: int, length_ms: int | None) -> Worth | None:
    """What a job is worth.

    A job of which nobody says so is worth its reservation price times its length if it is done
    as soon as it can be, which is after that length, and loses that over the same length again.

    Args:
        stated: What its user says.
        price_per_hour: Its reservation price, in micro-dollars per hour.
        length_ms: How long it takes alone.

    Returns:
        `None` if neither its user nor its length tells.
    """
    if stated is not None or length_ms is None:
        return stated
    amount = 2 * price_per_hour * length_ms // MILLIS_PER_HOUR
    return Worth(min(MOST_WORTH, amount), loses_per_hour=price_per_hour)
