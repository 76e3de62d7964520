"""How long a task is expected to run, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from math import isqrt

from eva_master.model.arithmetic.fixed_point import exceeds_ppm, exp_of_ppm, log_ppm
from eva_master.model.values import quick
from eva_wire.values.ids import MILLION

LONGEST_MS = 3_660 * 86_400_000
"""Ten years, the upper limit of all run-time estimates."""
_NEWS_PART = 20
"""A change of an estimate by less than one part in this many is ignored."""
_OLDER_FROM = 5, 4
"""A task that is older than expected is expected to take this many times its age."""
VAGUE_FROM_PPM = 693_147
"""Standard deviation of a logarithm, in millionths, that stands for a factor of two."""
_WIDEST_PPM = MILLION
"""The part of the variance by which the mean may lie above the median: a factor of 1.65."""


class Estimates(StrEnum):
    """Sources of run-time estimates, where no run time is stated."""

    POSTERIOR = "posterior"
    """Earlier jobs and the job's own finished tasks together."""
    PILOTS = "pilots"
    """The job's own finished tasks alone."""
    HISTORY = "history"
    """The owner's earlier jobs alone."""
    THREE_SIGMA = "3sigma"
    """The owner's earlier jobs alone by the rule of 3Sigma: the best statistic of one feature."""
    POINT = "point"
    """The owner's earlier jobs alone, as the median of one feature."""
    SLEARN_DAG = "slearn-dag"
    """A job's own finished tasks; for later stages of a DAG, 3Sigma's estimate scaled by how much
    the first stage exceeded its own 3Sigma estimate.
    """
    OFF = "off"
    """No estimates, and no learning of run times."""


class Source(StrEnum):
    """Origin of a single run-time estimate."""

    STATED = "stated"
    """The job file, or the program's own steps."""
    HISTORY = "history"
    """The owner's earlier jobs."""
    PILOTS = "pilots"
    """Finished tasks of the same job."""
    POSTERIOR = "posterior"
    """The owner's earlier jobs and finished tasks of the same job."""


@quick
@dataclass(frozen=True, slots=True)
class Estimate:
    """The standalone run time of one task of a job, from its start to its end.

    The logarithm of the run time has Student's distribution.

    Attributes:
        mean_ms: Mean of the run time, at least 1.
        log: Centre of the distribution: natural logarithm of milliseconds, in millionths.
        scale: Square of the distribution's scale, in millionths; 0 if the run time is stated.
        freedom: Degrees of freedom, at least 3.
        source: Origin of the estimate.
        tasks: Number of finished tasks of the same job behind it.
    """

    mean_ms: int
    log: int
    scale: int
    freedom: int
    source: Source
    tasks: int = 0

    @staticmethod
    def stated(duration_ms: int) -> Estimate:
        """An exact run time, which the user states."""
        duration = min(max(1, duration_ms), LONGEST_MS)
        return Estimate(duration, log_ppm(duration), 0, 3, Source.STATED)

    @property
    def spread_ppm(self) -> int:
        """Standard deviation of the logarithm, in millionths."""
        return isqrt(self.scale * self.freedom * MILLION // (self.freedom - 2))

    @property
    def vague(self) -> bool:
        """Whether this is a prior whose spread exceeds its mean, so that it should not be shown.

        Run times one standard deviation above the median then are more than twice the median.
        """
        return self.source is Source.HISTORY and self.spread_ppm > VAGUE_FROM_PPM

    @property
    def usual_ms(self) -> int:
        """The median run time; for a stated run time, that.

        A few very long tasks make the mean larger and hardly change the median.
        """
        return self.mean_ms if self.source is Source.STATED else median_ms(self.log)

    @property
    def likely_ms(self) -> int:
        """The median as well, but the mean once some tasks of the job have ended."""
        return self.mean_ms if self.tasks or not self.scale else self.usual_ms

    @property
    def least_ms(self) -> int:
        """A run time one standard deviation of the logarithm below the median."""
        return max(1, min(LONGEST_MS, exp_of_ppm(self.log - self.spread_ppm)))

    @property
    def most_ms(self) -> int:
        """A run time one standard deviation of the logarithm above the median."""
        return max(1, min(LONGEST_MS, exp_of_ppm(self.log + self.spread_ppm)))

    def near(self, other: Estimate) -> bool:
        """Whether another estimate of as many tasks says much the same: all but a twentieth."""
        spread = self.spread_ppm
        return (
            (self.source, self.tasks) == (other.source, other.tasks)
            and near(self.mean_ms, other.mean_ms)
            and abs(self.log - other.log) * _NEWS_PART <= MILLION
            and near(spread, other.spread_ppm)
        )

    def raised(self, finished: int, ages_ms: Sequence[int]) -> Estimate:
        """This estimate, corrected for running tasks that have outlived it.

        A stated run time stands.

        Args:
            finished: Number of finished tasks.
            ages_ms: How long each running task has run.
        """
        if self.source is Source.STATED:
            return self
        mean = min(LONGEST_MS, raised_ms(self.mean_ms, finished, ages_ms))
        if mean == self.mean_ms:
            return self
        log = self.log + log_ppm(mean) - log_ppm(self.mean_ms)
        return replace(self, mean_ms=mean, log=log)

    def exceeds_ppm(self, time_ms: int) -> int:
        """The probability that a task runs for longer than a given time, in millionths."""
        if self.source is Source.STATED:
            return MILLION if time_ms < self.mean_ms else 0
        if time_ms <= 0:
            return MILLION
        return exceeds_ppm(log_ppm(time_ms) - self.log, self.scale, self.freedom)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence behind an estimate, by source.

    Attributes:
        pilots: Number of finished tasks of the same job.
        pilots_ms: Their mean run time; 0 if there are none.
        feature: The feature that the job shares with earlier jobs of its owner and that has
            predicted best; empty if there are no such jobs.
        value: Its value.
        jobs: Number of remembered jobs with that value.
        jobs_ms: Median of the task run times of these jobs.
        spread_ppm: Expected error of that median: the standard deviation of its logarithm, in
            millionths.
    """

    pilots: int = 0
    pilots_ms: int = 0
    feature: str = ""
    value: str = ""
    jobs: int = 0
    jobs_ms: int = 0
    spread_ppm: int = 0


def near(told: int, fresh: int) -> bool:
    """Whether a figure is off by less than a twentieth of what was told."""
    return abs(told - fresh) * _NEWS_PART <= told


def raised_ms(mean_ms: int, finished: int, ages_ms: Sequence[int]) -> int:
    """Mean run time, corrected for running tasks by their ages.

    A task that has run for longer than expected is expected to take a quarter longer than it has
    run, and counts for one task.

    Args:
        mean_ms: The expected mean.
        finished: Number of finished tasks.
        ages_ms: How long each running task has run.
    """
    if not ages_ms or max(ages_ms) <= mean_ms:
        return mean_ms
    up, down = _OLDER_FROM
    running = sum(age * up // down if age > mean_ms else mean_ms for age in ages_ms)
    return (mean_ms * finished + running) // (finished + len(ages_ms))


def median_ms(log: int) -> int:
    """The median of a run time whose logarithm is symmetric around this, in milliseconds."""
    return max(1, min(LONGEST_MS, exp_of_ppm(log)))


def mean_ms(log: int, variance: int) -> int:
    """The mean of a log-normal run time, in milliseconds.

    Args:
        log: Mean of the logarithm, in millionths.
        variance: Variance of the logarithm, in millionths. Only the first 1.0 of it counts, since a
            larger mean would rest on run times that were never observed.
    """
    return max(1, min(LONGEST_MS, exp_of_ppm(log + min(variance, _WIDEST_PPM) // 2)))
