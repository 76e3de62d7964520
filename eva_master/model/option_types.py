"""Types of options. Values out of range are refused where settings are read."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Interval

from eva_wire.values.ids import MILLION

Throughput = Annotated[int, Interval(ge=1, le=MILLION)]
"""Normalised throughput in millionths: in (0, 1]."""
Share = Annotated[int, Interval(ge=0, le=MILLION)]
"""A share in millionths: in [0, 1]."""
PositiveShare = Annotated[int, Interval(ge=1, le=MILLION)]
"""A share in millionths that is not none: in (0, 1]."""
Weight = Annotated[int, Interval(ge=0, le=1000 * MILLION)]
"""A weight in millionths, not negative."""
Percent = Annotated[int, Interval(ge=0, le=100)]
Seconds = Annotated[int, Interval(ge=1, le=100 * 365 * 86_400)]
"""A duration in milliseconds that is not zero, since it is divided by."""
UsdPerHour = Annotated[float, Interval(gt=0, le=MILLION)]
"""Dollars per hour that are not none; who computes with them makes them micro-dollars first."""
Count = Annotated[int, Ge(0)]


class Contradiction(ValueError):
    """Options of a policy that do not go together.

    Args:
        option: The one that is to be another.
        message: Why, and what to do.
    """

    def __init__(self, option: str, message: str) -> None:
        super().__init__(message)
        self.option = option
