"""Settings of the policy `hadar`."""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.model.option_types import Count, Seconds, Weight

NAME = "hadar"


@dataclass(frozen=True, slots=True)
class Config:
    """Settings.

    Attributes:
        lease_s: For how long a job keeps a place that it was given.
        slack_s: Jobs that would end later than so long before everything can be done go first.
        near_ppm: A type will do if it costs at most so much more than the cheapest, in millionths.
        patience: Jobs that came longer ago than so many times what all that is left would take go
            before those that came after them.
        round_gap_s: From one round to the next, `None` for as often as the control loop likes.
        explained: Give reasons with every plan; they decide nothing.
    """

    lease_s: Seconds = 300
    slack_s: Seconds = 7200
    near_ppm: Weight = 70_000
    patience: Count = 2
    round_gap_s: Seconds | None = None
    explained: bool = True
