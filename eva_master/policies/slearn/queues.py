"""Who stands in which queue, in which order, and what that is as lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from eva_master.model.ids import JobId, Millis
from eva_master.model.planning.snapshot import JobView
from eva_master.model.planning.standing import Line
from eva_master.packing.toolkit import NODES
from eva_master.policies.slearn.config import Config
from eva_master.policies.slearn.dags import arrived_ms
from eva_master.policies.slearn.sizes import Work

PILOTS_QUEUE = 1
"""The second one: pilots are small, and everybody's sizes wait for them."""
Order = tuple[int, int, int, int, Millis, JobId]


@dataclass(frozen=True, slots=True)
class Queued:
    """A job and its queue.

    Attributes:
        job: The job.
        work: How much it has.
        queue: Its number, from 0.
        pilots: While the job waits for them, their indexes; else none.
        each: What one of its tasks counts for in what its queue holds.
    """

    job: JobView
    work: Work
    queue: int
    pilots: tuple[int, ...] = ()
    each: int = 1

    def order(self, config: Config, now: Millis) -> Order:
        """Jobs whose order is less come first: the more urgent, then by queue."""
        left = 0
        if config.order == "remaining" and not self.pilots:
            left = self.work.left_ms or 0
        over = self.passed_over_ms(config, now)
        came = arrived_ms(self.job) if config.whole_dags else self.job.submitted_ms
        return (-self.job.priority, self.queue, -over, left, came, self.job.id)

    def passed_over_ms(self, config: Config, now: Millis) -> int:
        """For how long no task of it was started, if that is too long; else 0."""
        at = self.overdue_ms(config)
        return 0 if at is None or now < at else now - self.work.started_ms

    def overdue_ms(self, config: Config) -> Millis | None:
        """When it has been passed over for too long; `None` if it never has."""
        if not (config.age_cap and self.work.waiting and self.work.whole_ms):
            return None
        return Millis(self.work.started_ms + config.age_cap * self.work.whole_ms)


def lines(config: Config, queued: Sequence[Queued]) -> tuple[Line, ...]:
    """The queues of those who wait for the nodes, for each priority its own.

    Other tasks of jobs whose pilots are not done take what nobody else wants.

    Args:
        config: Weights.
        queued: In their order.
    """
    found: list[Line] = []
    urgency = sorted({it.job.priority for it in queued}, reverse=True)
    for number, priority in enumerate(urgency):
        there = [it for it in queued if it.job.priority == priority]
        found += _queues(config, there, 2 * number)
        sampled = sorted(
            (it for it in there if it.pilots), key=lambda it: (it.job.submitted_ms, it.job.id)
        )
        if sampled:
            found.append(Line((NODES,), _names(sampled), rank=2 * number + 1))
    return tuple(found)


def _queues(config: Config, there: Sequence[Queued], rank: int) -> Iterator[Line]:
    for queue in sorted({it.queue for it in there}):
        those = [it for it in there if it.queue == queue]
        yield Line(
            (NODES,),
            _names(those),
            rank=rank,
            weight_ppm=config.weight_step ** (config.queues - 1 - queue),
            sizes=tuple((it.job.id, it.each) for it in those if it.each != 1),
            chosen=tuple((it.job.id, it.pilots) for it in those if it.pilots),
        )


def _names(queued: Iterable[Queued]) -> tuple[JobId, ...]:
    return tuple(it.job.id for it in queued)
