"""A line as it is served: whose turn it is, and how much it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from heapq import heapify, heappop, heappush

from eva_master.control.standing.queue import Queue, Shape
from eva_master.control.standing.rooms import MemberRoom
from eva_master.model.planning.standing import Line
from eva_wire.values.ids import InstanceId, JobId

Order = tuple[int, int, int]
_FINE = 1 << 128
"""Denominator of shares of held room, so large that different shares stay different: two weights
have fewer than 64 bits each.
"""
ClaimKey = tuple[int, tuple[str, ...], tuple[InstanceId | int, ...]]
"""Rank, pools and members of a claim; equal for lines of successive plans that are one claim."""


class LineClaim:
    """One line of a plan.

    Jobs are indexed by the shapes of their waiting tasks. One that turns out to have none, or is
    not admitted, is left out until it is offered again: whoever changes a job offers it.

    Args:
        number: Its place among the lines of the plan.
        line: As the plan states it.
        queues: The waiting tasks of its jobs.

    Attributes:
        shapes: Shapes of tasks that may wait, each with a heap of the places of their jobs.
    """

    def __init__(self, number: int, line: Line, queues: Mapping[JobId, Queue]) -> None:
        self.number = number
        self.line = line
        self.held = 0
        """The sum of what its jobs' tasks count for on the members that it claims."""
        self._queues = queues
        self._sizes = dict(line.sizes)
        self._caps = dict(line.at_most)
        self._chosen = dict(line.chosen)
        self._places: dict[JobId, int] = {}
        for place, job in enumerate(line.jobs):
            self._places.setdefault(job, place)
        self.shapes: dict[Shape, list[int]] = {}
        self._offered: set[tuple[Shape, int]] = set()
        for job, place in self._places.items():
            for shape in queues[job].shapes:
                self.shapes.setdefault(shape, []).append(place)
                self._offered.add((shape, place))
        for heap in self.shapes.values():
            heapify(heap)

    @property
    def jobs(self) -> Iterator[JobId]:
        """The jobs that stand in it."""
        return iter(self._places)

    @property
    def only(self) -> tuple[InstanceId, ...]:
        """The members that the claim is limited to; empty without such a limit."""
        return tuple(InstanceId(str(member)) for member in self.line.only)

    @property
    def key(self) -> ClaimKey:
        """The key of the claim among the claims of a plan."""
        return self.line.rank, self.line.pools, self.line.only

    def could_use(self, room: MemberRoom, shape: Shape) -> bool:
        """Whether a task could be given room that is free on a member that it claims."""
        return room.pool in self.line.pools and room.fits(dict(shape))

    def has(self, job: JobId) -> bool:
        """Whether a job stands in it."""
        return job in self._places

    def hold(self, job: JobId, more: int) -> None:
        """So many more tasks of a job are on members that it claims room on, or fewer."""
        self.held += more * max(1, self._sizes.get(job, 1))

    @property
    def order(self) -> Order:
        """Claims that compare lower are offered room first."""
        share = self.held * _FINE // max(1, self.line.weight_ppm)
        return self.line.rank, share, self.number

    def admits(self, job: JobId) -> bool:
        """Whether its cap leaves room for one more task of a job."""
        cap = self._caps.get(job)
        return cap is None or self._queues[job].started < cap

    def first(self, job: JobId, shape: Shape) -> int | None:
        """The first task of a job that stands in it, has a shape, and may start."""
        queue = self._queues.get(job)
        return None if queue is None else queue.first(shape, self._chosen.get(job))

    def join(self, job: JobId) -> None:
        """A job stands in it from now on, last; harmless if it does already."""
        if job not in self._places:
            self._places[job] = len(self.line.jobs)
            self.line = replace(self.line, jobs=(*self.line.jobs, job))

    def offer(self, job: JobId) -> None:
        """Look at a job again, which may have tasks that wait."""
        place = self._places[job]
        for shape in self._queues[job].shapes:
            if (shape, place) not in self._offered:
                self._offered.add((shape, place))
                heappush(self.shapes.setdefault(shape, []), place)

    def heads(
        self, admitted: Callable[[JobId], bool], shapes: Iterable[Shape]
    ) -> list[tuple[int, Shape]]:
        """The place in the line of the first job with a waiting task of each shape, in order.

        Args:
            admitted: Whether tasks of a job may start now, caps apart.
            shapes: The shapes that are looked at, of those that may wait.
        """
        shape_heads = []
        for shape in shapes:
            place = self._head(shape, admitted)
            if place is not None:
                shape_heads.append((place, shape))
        return sorted(shape_heads)

    def _head(self, shape: Shape, admitted: Callable[[JobId], bool]) -> int | None:
        heap = self.shapes[shape]
        while heap:
            job = self.line.jobs[heap[0]]
            waits = self.first(job, shape) is not None
            if waits and self.admits(job) and admitted(job):
                return heap[0]
            self._offered.discard((shape, heappop(heap)))
        del self.shapes[shape]
        return None
