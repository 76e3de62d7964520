"""Settings of the policy SLearn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Interval

from eva_master.model.option_types import Contradiction, Count, Seconds, Share
from eva_master.model.planning.estimate import Estimates
from eva_wire.values.ids import MILLION

Estimator = Literal[
    "posterior",
    "pilots",
    "3sigma",
    "3sigma-tl",
    "point",
    "las",
    "fifo",
    "oracle",
    "slearn-dag",
    "3sigma-dag",
    "point-dag",
    "las-dag",
]
_MODES: Mapping[str, Estimates] = {
    "posterior": Estimates.POSTERIOR,
    "pilots": Estimates.PILOTS,
    "3sigma": Estimates.THREE_SIGMA,
    "3sigma-tl": Estimates.THREE_SIGMA,
    "point": Estimates.POINT,
    "las": Estimates.PILOTS,  # else nothing is known of what finished tasks have had
    "slearn-dag": Estimates.SLEARN_DAG,
    "3sigma-dag": Estimates.THREE_SIGMA,
    "point-dag": Estimates.POINT,
    "las-dag": Estimates.PILOTS,
}
_WHOLE_DAGS = ("posterior", "oracle", "slearn-dag", "3sigma-dag", "point-dag", "las-dag")
_BY_ATTAINED = ("las", "las-dag")
_THIN_FIRST = ("posterior", "pilots", "3sigma-tl", "slearn-dag")
_MOST_QUEUES = 18


@dataclass(frozen=True, slots=True)
class Config:
    """Settings.

    Attributes:
        estimator: Source of a job's size: its `pilots`, earlier jobs (`3sigma`, `point`), or both
            (`posterior`); `oracle` knows it, in simulations alone. `las` uses the work that a job
            has had so far, and `fifo` its arrival. `3sigma-tl` is `3sigma` with `thin`.
            `slearn-dag`, `3sigma-dag`, `point-dag` and `las-dag` count a stage as large as its
            whole DAG, as `posterior` and `oracle` do; with `slearn-dag` the first stage has pilots,
            and later ones exceed 3Sigma's estimate as much as that one did.
        queues: Number of queues for jobs by size; at most 18.
        first_queue_s: Limit of work for the first queue, in seconds of one task.
        growth: Factor by which each queue's limit of work exceeds that of the one before.
        weight_step: Factor by which each queue's weight exceeds that of the one after it.
        thin: Jobs with fewer tasks are in the first queue, since pilots would tell nothing about
            them.
        ratio_ppm: Share of a job's tasks that are its pilots; 0 to find the best of 1 to 5 %.
        order: Order inside a queue: by least remaining work (`remaining`), or by arrival
            (`arrival`).
        requeue: Whether a job changes its queue with its remaining work.
        sure_ppm: Jobs whose run time is known better than this have no pilots (`posterior`): the
            standard deviation of its logarithm, in millionths.
        age_cap: A job that has had no task started for this many times its own work is first in its
            queue; 0 for never.
        seed: Seed of the choice of pilots.
        explained: Whether to give reasons with every plan; they decide nothing.
    """

    estimator: Estimator = "posterior"
    queues: Annotated[int, Interval(ge=1, le=_MOST_QUEUES)] = 10
    first_queue_s: Seconds = 1_000
    growth: Annotated[int, Interval(ge=2, le=1_000)] = 10
    weight_step: Annotated[int, Interval(ge=1, le=1_000)] = 10
    thin: Count = 3
    ratio_ppm: Share = 0
    order: Literal["remaining", "arrival"] = "remaining"
    requeue: bool = True
    sure_ppm: Annotated[int, Interval(ge=0, le=100 * MILLION)] = 600_000
    age_cap: Count = 5
    seed: Count = 1
    explained: bool = True

    def __post_init__(self) -> None:
        """Check that there is a queue for pilots."""
        if self.samples and self.queues < 2:
            raise Contradiction(
                "queues",
                "pilots are in the second queue, and queues: 1 leaves none; have more queues, or "
                "an estimator without pilots",
            )

    @property
    def samples(self) -> bool:
        """Whether some tasks of a job run first, so that its size is learned."""
        return self.estimator in ("posterior", "pilots", "slearn-dag")

    @property
    def whole_dags(self) -> bool:
        """Whether a stage of a DAG counts as much as its whole DAG."""
        return self.estimator in _WHOLE_DAGS

    @property
    def by_attained(self) -> bool:
        """Whether jobs are sorted by what they have had."""
        return self.estimator in _BY_ATTAINED

    @property
    def thin_first(self) -> bool:
        """Whether thin jobs are in the first queue whatever is known of them."""
        return self.estimator in _THIN_FIRST

    @property
    def mode(self) -> Estimates:
        """Source of run-time estimates, by the estimator."""
        return _MODES.get(self.estimator, Estimates.OFF)


_AS_PUBLISHED: Mapping[str, Any] = {"order": "arrival", "requeue": False, "age_cap": 0}
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "published": {"estimator": "pilots", **_AS_PUBLISHED},
    "3sigma": {"estimator": "3sigma", **_AS_PUBLISHED},
    "3sigma-tl": {"estimator": "3sigma-tl", **_AS_PUBLISHED},
    "point": {"estimator": "point", **_AS_PUBLISHED},
    "las": {"estimator": "las", "order": "arrival", "age_cap": 0},
    "fifo": {"estimator": "fifo", "queues": 1, **_AS_PUBLISHED},
    "oracle": {"estimator": "oracle", **_AS_PUBLISHED},
    "slearn-dag": {"estimator": "slearn-dag", **_AS_PUBLISHED},
    "3sigma-dag": {"estimator": "3sigma-dag", **_AS_PUBLISHED},
    "point-dag": {"estimator": "point-dag", **_AS_PUBLISHED},
    "las-dag": {"estimator": "las-dag", "order": "arrival", "age_cap": 0},
}
"""SLearn and what its paper compares it with, as published."""
