"""Settings of the policy `gavel`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from eva_master.model.option_types import Seconds

NAME = "gavel"


@dataclass(frozen=True, slots=True)
class Config:
    """Settings.

    Attributes:
        objective: What the division of the fleet is best for: the job that it serves worst
            (`max-min`), all jobs together (`max-sum`), or when the last job ends (`makespan`).
        lease_s: For how long a job keeps a place that it was given.
        divide_s: The fleet is divided anew when jobs have come or ended, but not within so many
            seconds of the last time.
        round_gap_s: From one round to the next, `None` for as often as the control loop likes.
        explained: Give reasons with every plan; they decide nothing.
    """

    objective: Literal["max-min", "max-sum", "makespan"] = "max-min"
    lease_s: Seconds = 300
    divide_s: Seconds = 1000
    round_gap_s: Seconds | None = 360
    explained: bool = True


PRESETS: Mapping[str, Mapping[str, Any]] = {
    "max-min": {"objective": "max-min"},
    "max-sum": {"objective": "max-sum"},
    "makespan": {"objective": "makespan"},
}
"""The objectives of its paper that Hadar's compares itself with, and the one for all jobs."""
