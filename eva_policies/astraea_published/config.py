"""Settings of the policy `astraea_published`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Interval

from eva_master.model.option_types import Count, Seconds, UsdPerHour, Weight

NAME = "astraea_published"

Slots = Annotated[int, Interval(ge=1, le=1_000_000)]


@dataclass(frozen=True, slots=True)
class Config:
    """Settings.

    Attributes:
        slot_s: Length of a slot, the unit of all times.
        horizon_slots: Slots after which the clock of the batches starts anew, unless a job needs a
            longer round.
        rounds: Number of rounds in which a batch is scheduled, lambda; 0 for the paper's formula.
        share: Whether idle room of tenants is open to the jobs of others.
        full_gpu_usd: Price of a GPU for a slot when all are in use, in dollars: theta less one.
            `None` for the worth per GPU and slot of the densest job of earlier batches.
        full_ps_usd: Price of a parameter server for a slot when all are in use, as for a GPU.
        theta_ppm: Factor on both of these, in millionths.
        worker_mbps: Bandwidth of a worker, in megabits per second.
        ps_mbps: Bandwidth of a parameter server.
        ps_per_server: Number of parameter servers that a machine has room for; 0 leaves them out.
        round_gap_s: Time from one plan to the next, `None` for as often as the control loop likes.
        explained: Whether to give reasons with every plan; they decide nothing.
    """

    slot_s: Seconds = 3_600
    horizon_slots: Slots = 64
    rounds: Count = 2
    share: bool = True
    full_gpu_usd: UsdPerHour | None = None
    full_ps_usd: UsdPerHour | None = None
    theta_ppm: Weight = 1_000_000
    worker_mbps: Slots = 1_000
    ps_mbps: Slots = 10_000
    ps_per_server: Count = 0
    round_gap_s: Seconds | None = None
    explained: bool = True


PRESETS: Mapping[str, Mapping[str, Any]] = {"batchsche": {"share": False}}
"""BatchSche: the same batches, in which each tenant has its own quota and no more."""
