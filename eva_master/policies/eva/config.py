"""Settings of the Eva policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from eva_master.model.option_types import Count, Seconds, Throughput, Weight
from eva_master.model.planning.spot_choice import SpotChoice

NAME = "eva"


@dataclass(frozen=True, slots=True)
class Config:
    """Settings.

    Attributes:
        round_gap_s: Time from one round to the next, `None` for as often as the control loop likes.
        interference: Whether to expect tasks that share an instance to slow each other down.
        default_throughput_ppm: Throughput of two workloads never seen together, in millionths;
            smaller packs more cautiously.
        multi_task_view: Whether to charge the slowdown of one member for its whole gang.
        explained: Whether to give reasons and a lower bound with every plan; they decide nothing.
        optimizer: ``greedy`` packs by the paper's Algorithm 1; ``lp`` also solves the
            configuration LP and takes whichever packing is cheaper; ``auto`` does so unless
            nearly every task differs from all others. A search begins with such a packing where
            much is waiting.
        horizon_s: Time within which moves and launches are to pay.
        lost_ppm: Weight of the throughput lost to neighbours against prices, in millionths.
            Throughput lost to a slow family always counts in full.
        gang_lost_ppm: Weight of the throughput that gangs lose to neighbours, in millionths.
        moves_ppm: Weight of the cost of a move, in millionths; a smaller weight leads to more
            moves.
        lasting_ppm: The next move of a task is to pay within this part of the time since its last
            one, in millionths, where that is shorter than the horizon.
        spare_ending: Whether to launch nothing for tasks that all end, as stated or measured,
            before it is up and they run there.
        horizon_left: Whether the move of a task is to pay within its remaining time, where that is
            shorter than the horizon.
        iterations: Number of trials, in which instances are taken apart, in a round in which a job
            arrived or ended.
        afresh_every: Number of arrivals and ends of jobs after which a round also begins with a
            packing of everything that may move; 0 for never.
        scarcity: Whether, with limited and unlimited offerings, the search also begins with waiting
            tasks and tasks on limited offerings placed anew at prices that include the worth of the
            limits; so tasks that run almost as well elsewhere leave limited ones to others.
        by_base: Whether variants of a workload, such as ``bert[1]`` and ``bert[2]``, teach each
            other about co-location.
        infer_pairs: Whether sets of more than two teach about the pairs in them.
        spot_choice: How jobs with deadlines choose between spot instances, others and waiting,
            where the master's setting of this name leaves that to the policy.
    """

    round_gap_s: Seconds | None = None
    interference: bool = True
    default_throughput_ppm: Throughput = 950_000
    multi_task_view: bool = True
    explained: bool = True
    optimizer: Literal["greedy", "lp", "auto"] = "auto"
    horizon_s: Seconds = 3600
    lost_ppm: Weight = 700_000
    gang_lost_ppm: Weight = 1_000_000
    moves_ppm: Weight = 500_000
    lasting_ppm: Weight = 500_000
    spare_ending: bool = True
    horizon_left: bool = False
    iterations: Count = 2000
    afresh_every: Count = 0
    scarcity: bool = True
    by_base: bool = True
    infer_pairs: bool = True
    spot_choice: SpotChoice | None = None


PRESETS: Mapping[str, Mapping[str, Any]] = {
    "spot_until_safety_net": {"spot_choice": SpotChoice.UNTIL_SAFETY_NET},
    "uniform_progress": {"spot_choice": SpotChoice.UNIFORM_PROGRESS},
    "on_demand": {"spot_choice": SpotChoice.ON_DEMAND},
}
"""Presets with other rules for jobs with deadlines, for comparisons."""
