"""Settings of Hadar as published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Interval

from eva_master.model.option_types import Seconds, Share

NAME = "hadar_published"

Branches = Annotated[int, Interval(ge=1, le=1024)]
Eta = Annotated[float, Interval(gt=0, le=1e12)]


@dataclass(frozen=True, slots=True)
class Config:
    """Settings. Details that the paper leaves open are options.

    Attributes:
        lease_s: How long a job keeps a place that it was given.
        round_gap_s: Time from one round to the next, `None` for as often as the control loop likes.
        replan: Whether every round allots the whole fleet anew, or only free room.
        order: Order of the queue within a priority: by arrival, by most utility per GPU, or by
            least remaining work.
        utility: Utility of a job by the time of its end; see `asks.Utility`.
        candidate: Whether the allocation of the best payoff is taken, or the cheapest.
        refused: Treatment of jobs whose payoff is not above 0; see `branches.Refused`.
        branches: Number of branches of the dynamic programme that are kept.
        communication_ppm: Charge for a job on several servers, in millionths of its utility.
        horizon_s: T: assumed upper limit of the time from a job's arrival to its end.
        eta: Scale of the lowest price; `None` for the least that the paper's bound allows.
        remember_prices: Whether jobs that have ended count for the lowest and the highest price.
        forks: Whether every job that may be forked is, into as many copies as there are nodes,
            which are merged once a round (HadarE).
        first_rates: Whether unknown rates are guessed by HadarE's formula.
        explained: Whether to give reasons with every plan; they decide nothing.
    """

    lease_s: Seconds = 300
    round_gap_s: Seconds | None = 360
    replan: Literal["every_round", "arrivals"] = "every_round"
    order: Literal["arrival", "utility", "shortest"] = "arrival"
    utility: Literal["throughput", "promptness", "gpu-time", "slowdown"] = "throughput"
    candidate: Literal["payoff", "cost"] = "payoff"
    refused: Literal["waits", "ends", "fills"] = "waits"
    branches: Branches = 4
    communication_ppm: Share = 100_000
    horizon_s: Seconds = 360_000
    eta: Eta | None = None
    remember_prices: bool = True
    forks: bool = False
    first_rates: bool = False
    explained: bool = True


PRESETS: Mapping[str, Mapping[str, Any]] = {
    "hadare": {"forks": True, "first_rates": True, "refused": "fills"},
}
"""HadarE: nobody waits beside an idle node, since its copies are to use all nodes."""
