"""Settings of the Synergy policy."""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.model.option_types import Seconds, Throughput


@dataclass(frozen=True, slots=True)
class Config:
    """Settings.

    Attributes:
        round_gap_s: From one round to the next, `None` for as often as the control loop likes.
        default_throughput_ppm: Throughput of two workloads never seen together, in millionths.
        explained: Give reasons with every plan; they decide nothing.
    """

    round_gap_s: Seconds | None = 300
    default_throughput_ppm: Throughput = 950_000
    explained: bool = True
