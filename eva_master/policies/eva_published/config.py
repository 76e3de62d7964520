"""Settings of the published Eva, and its ablations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from eva_master.model.option_types import Seconds, Throughput


@dataclass(frozen=True, slots=True)
class Config:
    """Settings; the defaults are the paper's.

    Attributes:
        round_gap_s: From one round to the next, `None` for as often as the control loop likes.
        interference: Expect tasks that share an instance to slow each other down.
        default_throughput_ppm: Throughput of two workloads never seen together, in millionths;
            smaller packs more cautiously.
        multi_task_view: Charge the slowdown of one member for its whole gang.
        explained: Give reasons and a lower bound with every plan; they decide nothing.
        optimizer: ``greedy`` packs by the paper's Algorithm 1; ``lp`` also solves the
            configuration LP and takes whichever packing is cheaper; ``auto`` does so unless
            nearly every task differs from all others.
        full: Consider full reconfigurations.
        partial: Consider partial ones. Without them a full one is adopted whenever it saves,
            whatever its migration costs.
        min_horizon_s: Shortest time that a configuration is expected to last before there was a
            full reconfiguration, and over which the rate of events is measured, so that a young
            cluster is not paralysed.
        half_life_s: Age at which an event counts half in the estimates of rates.
    """

    round_gap_s: Seconds | None = 300
    interference: bool = True
    default_throughput_ppm: Throughput = 950_000
    multi_task_view: bool = True
    explained: bool = True
    optimizer: Literal["greedy", "lp", "auto"] = "greedy"
    full: bool = True
    partial: bool = True
    min_horizon_s: Seconds = 1800
    half_life_s: Seconds = 21_600


PRESETS: Mapping[str, Mapping[str, Any]] = {
    "rp": {"interference": False},
    "partial-only": {"full": False},
    "full-only": {"partial": False},
    "single-task": {"multi_task_view": False},
}
"""The paper's ablations."""
