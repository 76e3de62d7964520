"""Settings of the policy `astraea`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from eva_master.model.option_types import Seconds, UsdPerHour

NAME = "astraea"

Pricing = Literal["clearing", "posted", "none"]
Recall = Literal["checkpoint", "never"]


@dataclass(frozen=True, slots=True)
class Config:
    """Settings.

    Attributes:
        recall: Whether borrowers are stopped from a checkpoint when a lender wants its quota, or
            keep what they have until they are done, as everybody does then.
        pricing: What borrowers pay: what waiting costs the best job that gets nothing; a price
            posted before that grows with the share in use; or nothing.
        posted_usd_per_hour: Of posted prices: what a GPU costs for an hour when all are in use.
        guarantee: Whether tenants that are worse off than alone are made whole.
        settle_s: From one settlement to the next.
        lease_s: For how long a job keeps a place that it was given, unless a lender wants it.
        horizon_s: More members have to pay for the restart within that time.
        round_gap_s: From one round to the next, `None` for as often as the control loop likes.
        explained: Give reasons with every plan; they decide nothing.
    """

    recall: Recall = "checkpoint"
    pricing: Pricing = "clearing"
    posted_usd_per_hour: UsdPerHour = 1.0
    guarantee: bool = True
    settle_s: Seconds = 86_400
    lease_s: Seconds = 300
    horizon_s: Seconds = 3_600
    round_gap_s: Seconds | None = None
    explained: bool = True
