"""Queues of jobs, their order, and the lines that represent them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.standing import Line
from eva_master.packing.toolkit import NODES
from eva_policies.slearn.config import Config
from eva_policies.slearn.dags import arrived_ms
from eva_policies.slearn.sizes import JobWork
from eva_wire.values.ids import JobId, Millis

PILOTS_QUEUE = 1
"""The second one: pilots are small, and everybody's sizes wait for them."""
Order = tuple[int, int, int, int, Millis, JobId]


@dataclass(frozen=True, slots=True)
class Queued:
    """A job and its queue.

    Attributes:
        job: The job.
        work: Its work.
        queue: Number of the queue, from 0.
        pilots: While the job waits for them, their indexes; else none.
        each: Weight of one of its tasks in what its queue holds.
    """

    job: JobView
    work: JobWork
    queue: int
    pilots: tuple[int, ...] = ()
    each: int = 1

    def order(self, config: Config, now: Millis) -> Order:
        """Sort key of jobs: the more urgent first, then by queue."""
        rest_ms = 0
        if config.order == "remaining" and not self.pilots:
            rest_ms = self.work.left_ms or 0
        over = self.passed_over_ms(config, now)
        came = arrived_ms(self.job) if config.whole_dags else self.job.submitted_ms
        return (-self.job.priority, self.queue, -over, rest_ms, came, self.job.id)

    def passed_over_ms(self, config: Config, now: Millis) -> int:
        """How long no task of it was started, if that is too long; else 0."""
        at = self.overdue_ms(config)
        return 0 if at is None or now < at else now - self.work.started_ms

    def overdue_ms(self, config: Config) -> Millis | None:
        """When it has been passed over for too long; `None` if it never has."""
        if not (config.age_cap and self.work.waiting and self.work.whole_ms):
            return None
        return Millis(self.work.started_ms + config.age_cap * self.work.whole_ms)


def lines(config: Config, queued: Sequence[Queued]) -> tuple[Line, ...]:
    """The queues of jobs that wait for the nodes, separate for each priority.

    Other tasks of jobs whose pilots are not done take room that no other job wants.

    Args:
        config: Settings, with the weights.
        queued: The jobs, in their order.
    """
    all_lines: list[Line] = []
    urgency = sorted({entry.job.priority for entry in queued}, reverse=True)
    for number, priority in enumerate(urgency):
        of_priority = [entry for entry in queued if entry.job.priority == priority]
        all_lines += _queues(config, of_priority, 2 * number)
        sampled = sorted(
            (entry for entry in of_priority if entry.pilots),
            key=lambda it: (it.job.submitted_ms, it.job.id),
        )
        if sampled:
            all_lines.append(Line((NODES,), _names(sampled), rank=2 * number + 1))
    return tuple(all_lines)


def _queues(config: Config, there: Sequence[Queued], rank: int) -> Iterator[Line]:
    for queue in sorted({entry.queue for entry in there}):
        those = [entry for entry in there if entry.queue == queue]
        yield Line(
            (NODES,),
            _names(those),
            rank=rank,
            weight_ppm=config.weight_step ** (config.queues - 1 - queue),
            sizes=tuple((entry.job.id, entry.each) for entry in those if entry.each != 1),
            chosen=tuple((entry.job.id, entry.pilots) for entry in those if entry.pilots),
        )


def _names(queued: Iterable[Queued]) -> tuple[JobId, ...]:
    return tuple(entry.job.id for entry in queued)
