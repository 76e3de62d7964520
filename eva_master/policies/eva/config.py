"""Settings of the Eva policy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from eva_master.model.figures import Seconds, Throughput


@dataclass(frozen=True, slots=True)
class Config:
    """Settings; each switch turned off gives one of the paper's ablations.

    Attributes:
        interference: Expect tasks that share an instance to slow each other down.
        default_throughput_ppm: Throughput of two workloads never seen together, in millionths;
            smaller packs more cautiously.
        full: Consider full reconfigurations.
        partial: Consider partial ones. Without them a full one is adopted whenever it saves,
            whatever its migration costs.
        multi_task_view: Charge the slowdown of one member for its whole gang.
        optimizer: ``greedy`` packs by the paper's Algorithm 1; ``lp`` also solves the
            configuration LP and takes whichever packing is cheaper; ``auto`` does so unless
            nearly every task differs from all others.
        min_horizon_s: Shortest time that a configuration is expected to last before there was a
            full reconfiguration, and over which the rate of events is measured, so that a
            young cluster is not paralysed.
        half_life_s: Age at which an event counts half in the estimates of rates.
    """

    interference: bool = True
    default_throughput_ppm: Throughput = 950_000
    full: bool = True
    partial: bool = True
    multi_task_view: bool = True
    optimizer: Literal["greedy", "lp", "auto"] = "auto"
    min_horizon_s: Seconds = 1800
    half_life_s: Seconds = 21_600
