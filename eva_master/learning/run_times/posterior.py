"""A job's run time, estimated from earlier jobs and its own finished tasks together.

Logarithms of the run times of a job's tasks are modelled as normal, with a mean and a variance of
the job. The belief about these two is a normal-inverse-gamma distribution, before and after each
finished task. All numbers are integers, in millionths, so that all machines compute equal results.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from eva_master.model.arithmetic.fixed_point import log_ppm
from eva_master.model.planning.estimate import LONGEST_MS, Estimate, Source, mean_ms
from eva_master.model.values import quick
from eva_wire.values.ids import MILLION

_AVERAGED_FROM = 3
"""From so many finished tasks on their plain mean counts."""
_AVERAGED_ALONE_FROM = 10
"""From so many on nothing else does."""
_LEAST = 100
"""No variance is less: a spread of one per cent."""
_REMEMBERED = 4_096
_FREEDOM_LEAST = 4
"""So many tasks speak for the assumed spread within a job."""


@quick
@dataclass(frozen=True, slots=True)
class Finished:
    """Tasks of one job that are alike and have finished; the order does not matter.

    Attributes:
        tasks: How many.
        total_ms: Their standalone times together.
        logs: The logarithms of these times together, in millionths.
        squares: The squares of these logarithms together, in millionths of millionths.
    """

    tasks: int = 0
    total_ms: int = 0
    logs: int = 0
    squares: int = 0

    def plus(self, took_ms: int) -> Finished:
        """After one more task, whose standalone time is at least 1 ms."""
        took = min(max(1, took_ms), LONGEST_MS)
        log = log_ppm(took)
        return Finished(
            self.tasks + 1, self.total_ms + took, self.logs + log, self.squares + log * log
        )

    @property
    def log(self) -> int:
        """The mean of the logarithms; there is at least one task."""
        return self.logs // self.tasks

    @property
    def deviation(self) -> int:
        """The sum of squared deviations of the logarithms from their mean, in millionths."""
        if self.tasks == 0:
            return 0
        exact = self.squares * self.tasks - self.logs * self.logs
        return exact // (self.tasks * MILLION)


NONE_FINISHED = Finished()


@dataclass(frozen=True, slots=True)
class Prior:
    """Belief about a job before any of its tasks has finished.

    Attributes:
        log: Expected mean of the logarithms.
        between: Variance of that mean over jobs.
        within: Expected variance of the tasks of one job around it.
        freedom: Number of tasks behind that variance.
    """

    log: int
    between: int
    within: int
    freedom: int

    def after(self, finished: Finished) -> Belief:
        """The belief after tasks of the job have finished.

        If they are further from the expectation than `between` allows, it is raised by the excess:
        the job then is unlike earlier ones, and its own tasks count for more.
        """
        between, within = max(_LEAST, self.between), max(_LEAST, self.within)
        freedom = max(_FREEDOM_LEAST, self.freedom)
        if finished.tasks:
            off = (finished.log - self.log) ** 2 // MILLION
            between += max(0, off - between - within // finished.tasks)
        weight = max(1, within * MILLION // between)
        return Belief(self.log, weight, freedom, freedom * within).updated(finished)


@dataclass(frozen=True, slots=True)
class Belief:
    """A normal-inverse-gamma distribution of the mean and the variance of a job's logarithms.

    Attributes:
        log: Expected mean.
        weight: How many tasks that is worth, in millionths.
        freedom: Twice the shape of the variance's distribution.
        deviation: Twice its scale, in millionths.
    """

    log: int
    weight: int
    freedom: int
    deviation: int

    def updated(self, finished: Finished) -> Belief:
        """The distribution given tasks that have finished."""
        count = finished.tasks
        if count == 0:
            return self
        weight = self.weight + count * MILLION
        log = (self.weight * self.log + MILLION * finished.logs) // weight
        # count * (mean - prior)^2, without rounding the mean.
        apart = (finished.logs - count * self.log) ** 2 // count
        pulled = self.weight * apart // (weight * MILLION)
        deviation = self.deviation + finished.deviation + pulled
        return Belief(log, weight, self.freedom + count, deviation)

    @property
    def scale(self) -> int:
        """Square of the scale of Student's distribution of the next task's logarithm."""
        return self.deviation * (self.weight + MILLION) // (self.freedom * self.weight)

    def estimate(self, source: Source, finished: Finished) -> Estimate:
        """The run time of the next task."""
        scale, freedom = self.scale, self.freedom
        expected = mean_ms(self.log, scale * freedom // (freedom - 2))
        counted = finished.tasks
        if counted and source is Source.PILOTS:  # nothing else is known
            counted = _AVERAGED_ALONE_FROM
        averaged = min(counted, _AVERAGED_ALONE_FROM) - _AVERAGED_FROM + 1
        if averaged > 0:
            of = _AVERAGED_ALONE_FROM - _AVERAGED_FROM + 1
            plain = finished.total_ms // finished.tasks
            expected = (expected * (of - averaged) + plain * averaged) // of
        return Estimate(max(1, expected), self.log, scale, freedom, source, finished.tasks)


@lru_cache(maxsize=_REMEMBERED)
def estimated(prior: Prior, finished: Finished, source: Source) -> Estimate:
    """The run time of the next task of a job; many jobs have the same one."""
    return prior.after(finished).estimate(source, finished)
