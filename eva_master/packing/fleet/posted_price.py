"""A price that grows with what is in use (Astraea, equation 8)."""

from __future__ import annotations

from eva_master.model.arithmetic.fixed_point import exp_of_ppm, log_ppm
from eva_wire.values.ids import MILLION


def posted_price(full: int, used: int, capacity: int) -> int:
    """Raise theta to the power of the share in use, less one dollar.

    Args:
        full: Theta less one, in micro-dollars: the price when everything is in use.
        used: How much is in use.
        capacity: How much there is.

    Returns:
        Micro-dollars, not negative.
    """
    logarithm = log_ppm(MILLION + full) - log_ppm(MILLION)
    grown = exp_of_ppm(log_ppm(MILLION) + logarithm * used // max(1, capacity))
    return max(0, grown - MILLION)
