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
            keep their room until they are done, as all jobs do then.
        pricing: Price for borrowers: the cost of waiting of the best job that gets nothing; a
            posted price that grows with the share in use; or nothing.
        posted_usd_per_hour: For posted prices: price of a GPU-hour when all are in use.
        guarantee: Whether tenants that are worse off than alone are compensated.
        settle_s: Time from one settlement to the next.
        lease_s: How long a job keeps a place that it was given, unless a lender wants it.
        horizon_s: The gain of more members has to pay for the restart within this time.
        round_gap_s: Time from one round to the next, `None` for as often as the control loop likes.
        explained: Whether to give reasons with every plan; they decide nothing.
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
