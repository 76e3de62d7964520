"""Settings of the Stratus policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Interval

from eva_master.model.option_types import Percent, Seconds, Share
from eva_wire.values.ids import MILLION


@dataclass(frozen=True, slots=True)
class Config:
    """Settings.

    Attributes:
        round_gap_s: From one round to the next, `None` for as often as the control loop likes.
        assumed_duration_s: How long a job is held to run of which nothing is known well enough.
        sure_ppm: An estimated run time counts if it is known better than this: the standard
            deviation of its logarithm, in millionths.
        unlikely_ppm: However unsure it is, it counts if by it so small a share of such tasks would
            run for as long as is assumed, or for as short, in millionths.
        clear_below_percent: An instance of which less than this is used of every resource is
            cleared if its tasks can run elsewhere for less. 0 clears none.
        explained: Give reasons with every plan; they decide nothing.
    """

    round_gap_s: Seconds | None = 300
    assumed_duration_s: Seconds = 14_400
    sure_ppm: Annotated[int, Interval(ge=0, le=100 * MILLION)] = 500_000
    unlikely_ppm: Share = 100
    clear_below_percent: Percent = 50
    explained: bool = True
