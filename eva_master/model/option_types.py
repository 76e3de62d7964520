"""Figures that settings of policies may hold: what is out of range is refused where it is read."""

from __future__ import annotations

from typing import Annotated

from annotated_types import Ge, Interval

from eva_master.model.ids import MILLION

Throughput = Annotated[int, Interval(ge=1, le=MILLION)]
"""Normalised throughput in millionths: in (0, 1]."""
Share = Annotated[int, Interval(ge=0, le=MILLION)]
"""A part of something in millionths: in [0, 1]."""
Weight = Annotated[int, Interval(ge=0, le=1000 * MILLION)]
"""How much something counts, in millionths."""
Percent = Annotated[int, Interval(ge=0, le=100)]
Seconds = Annotated[int, Interval(ge=1, le=100 * 365 * 86_400)]
"""A time that is divided by: never nothing."""
Count = Annotated[int, Ge(0)]
