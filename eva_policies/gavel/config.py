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
        objective: Goal of the division of the fleet: the job that is served worst (`max-min`), all
            jobs together (`max-sum`), or the end of the last job (`makespan`).
        lease_s: How long a job keeps a place that it was given.
        divide_s: Least time from one division to the next; the fleet is divided anew when jobs have
            come or ended.
        round_gap_s: Time from one round to the next, `None` for as often as the control loop likes.
        explained: Whether to give reasons with every plan; they decide nothing.
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
