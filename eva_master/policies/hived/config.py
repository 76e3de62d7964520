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
        opportunistic: What jobs that find no room in their tenant's quota may use until it is
            wanted: all that is unused, or only the quotas of tenants without any job.
        lease_s: For how long a job keeps a place that it was given.
        round_gap_s: From one round to the next, `None` for as often as the control loop likes.
        explained: Give reasons with every plan; they decide nothing.
    """

    opportunistic: Opportunistic = "unused"
    lease_s: Seconds = 300
    round_gap_s: Seconds | None = None
    explained: bool = True
