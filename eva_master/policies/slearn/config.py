"""Settings of the policy SLearn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from annotated_types import Interval

from eva_master.model.ids import MILLION
from eva_master.model.option_types import Contradiction, Count, Seconds, Share
from eva_master.model.planning.estimate import Estimates

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
        estimator: What the size of a job is known from: its `pilots`, earlier jobs (`3sigma`,
            `point`), or both (`posterior`); `oracle` knows it, in simulations alone. `las` goes by
            the work that a job has had so far, and `fifo` by its arrival. `3sigma-tl` is `3sigma`
            with `thin`. `slearn-dag`, `3sigma-dag`, `point-dag` and `las-dag` take a stage for as
            large as its whole DAG, as `posterior` and `oracle` do; of `slearn-dag` the first stage
            has pilots, and later ones are as much longer than 3Sigma says as that one was.
        queues: How many queues there are for jobs by size; at most 18.
        first_queue_s: Jobs with less work than so many seconds of one task are in the first queue.
        growth: Each queue takes so many times as much work as the one before.
        weight_step: Each queue has so many times the weight of the one after it.
        thin: Jobs with fewer tasks are in the first queue, since pilots would tell nothing of them.
        ratio_ppm: The share of a job's tasks that are its pilots; 0 to find the best of 1 to 5 %.
        order: Who is first inside a queue: who has the least work left (`remaining`), or who came
            first (`arrival`).
        requeue: Whether a job changes its queue with the work that it has left.
        sure_ppm: Jobs whose run time is known better than this have no pilots (`posterior`): the
            standard deviation of its logarithm, in millionths.
        age_cap: A job of which no task was started for so many times its own work is first in its
            queue; 0 for never.
        seed: Which tasks are pilots.
        explained: Give reasons with every plan; they decide nothing.
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
        """What run times are to be estimated from."""
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
