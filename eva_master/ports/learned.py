"""Values: what was learned of spot pools and of how long jobs take, as users see it."""

from __future__ import annotations

from dataclasses import dataclass

from eva_wire.values.ids import Millis


@dataclass(frozen=True, slots=True)
class WatchedPool:
    """Facts that were seen of one type in one zone on the spot market.

    Attributes:
        name: Of both. there: Whether it was there when it was seen last.
        since_ms: Since when it has been so.
        began: Whether it came to be so then, rather than before anybody asked.
        seen_ms: When it was seen last.
        tries: Launches that were refused in a row. retry_ms: When the next may be tried.
        stays_ppm: The chance that it is still so an hour later, in millionths.
    """

    name: str
    there: bool
    since_ms: Millis
    began: bool
    seen_ms: Millis
    tries: int
    retry_ms: Millis
    stays_ppm: int


@dataclass(frozen=True, slots=True)
class LearnedTime:
    """How long the jobs of an owner took that have one value of a feature.

    Attributes:
        owner: Owner of the jobs. feature: Common feature of the jobs, such as ``workload``.
        value: Its value, empty for all jobs of the owner.
        median_ms: Run time of one of their tasks.
        between_ppm: Variance of the logarithm over jobs, in millionths.
        within_ppm: Variance of the logarithm over the tasks of a job, likewise.
        error_ppm: Mean squared error as a prediction of the next job, likewise.
        jobs: How many jobs it comes from. tasks: How many tasks these had.
        at_ms: When the last of them ended.
    """

    owner: str
    feature: str
    value: str
    median_ms: int
    between_ppm: int
    within_ppm: int
    error_ppm: int
    jobs: int
    tasks: int
    at_ms: Millis
