"""Settings of the policy `tiresias`."""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.model.option_types import Seconds

NAME = "tiresias"


@dataclass(frozen=True, slots=True)
class Config:
    """Settings.

    Attributes:
        first_queue_gpu_s: Jobs that have had less GPU time than this, in seconds of one GPU, are in
            the first queue, the others in the second.
        lease_s: For how long a job keeps a place that it was given.
        round_gap_s: From one round to the next, `None` for as often as the control loop likes.
        explained: Give reasons with every plan; they decide nothing.
    """

    first_queue_gpu_s: Seconds = 3250
    lease_s: Seconds = 300
    round_gap_s: Seconds | None = 360
    explained: bool = True
