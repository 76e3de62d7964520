"""Settings of the policy `gandiva_fair`."""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.model.option_types import Seconds

NAME = "gandiva_fair"


@dataclass(frozen=True, slots=True)
class Config:
    """Settings.

    Attributes:
        lease_s: For how long a job keeps a place that it was given.
        round_gap_s: From one round to the next, `None` for as often as the control loop likes.
        explained: Give reasons with every plan; they decide nothing.
    """

    lease_s: Seconds = 300
    round_gap_s: Seconds | None = None
    explained: bool = True
