"""Settings of the policy `hived`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from eva_master.model.option_types import Seconds

NAME = "hived"

Opportunistic = Literal["unused", "idle"]


@dataclass(frozen=True, slots=True)
class Config:
    """Settings.

    Attributes:
        opportunistic: Room for jobs that do not fit in their tenant's quota, until its owners want
            it: all unused room, or only the quotas of tenants without any job.
        lease_s: How long a job keeps a place that it was given.
        round_gap_s: Time from one round to the next, `None` for as often as the control loop likes.
        explained: Whether to give reasons with every plan; they decide nothing.
    """

    opportunistic: Opportunistic = "unused"
    lease_s: Seconds = 300
    round_gap_s: Seconds | None = None
    explained: bool = True
