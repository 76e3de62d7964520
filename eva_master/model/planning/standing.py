"""Pools of instances that stay, and lines of tasks for the room that becomes free there."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from eva_master.model.fleet.partitions import ShortJobs
from eva_master.model.job import Latency
from eva_wire.values.ids import MILLION, InstanceId, JobId


def full_name(partition: str, pool: str) -> str:
    """The name of a pool in the whole cluster: partitions may have pools of one name."""
    return f"{partition}/{pool}" if partition and pool else pool


@dataclass(frozen=True, slots=True)
class Pool:
    """Instances that stay though they are empty, until a plan no longer states them.

    Members of a shared pool do not stay: lines may claim their free room for as long as others keep
    them, and stating the pool changes nothing else.

    Attributes:
        name: Of the pool, as users see it.
        members: Live instances, and new ones by their keys in the plan.
        reason: Why they stay, for the user.
        closed: Members that take no task from a line for now.
        shared: Whether others use its members, which are live and in no other pool.
        room_for: Number of tasks for which an operator has it keep room, whether these exist or
            not.
    """

    name: str
    members: tuple[InstanceId | int, ...]
    reason: str
    closed: tuple[InstanceId | int, ...] = ()
    shared: bool = False
    room_for: int = field(default=0, compare=False)

    @property
    def instances(self) -> tuple[InstanceId, ...]:
        """The members by name; one that is yet to be launched has its number for a name."""
        return cast("tuple[InstanceId, ...]", tuple(map(str, self.members)))


@dataclass(frozen=True, slots=True)
class Newcomers:
    """Arriving jobs that a line takes in.

    Attributes:
        short: Definition of short jobs, which are the ones taken in; `None` for all jobs that can
            stand in a line.
    """

    short: ShortJobs | None = None

    def take(self, latency: Latency, task_ms: int | None) -> bool:
        """Whether the line takes in a job; see `ShortJobs.has`."""
        return self.short is None or self.short.has(latency, task_ms)


@dataclass(frozen=True, slots=True)
class Line:
    """A claim of waiting tasks on room that becomes free in pools.

    The head of a line is the first waiting task that fits. Members of gangs of several tasks and of
    elastic gangs of any size cannot stand in a line. A line holds the tasks of its jobs on the
    members that it claims, however they got their places; `sizes` gives the weight of each.

    Attributes:
        pools: Names of the pools whose room it claims, the preferred ones first.
        jobs: Jobs whose waiting tasks stand in it: those of the first, by index, then of the next.
        rank: Lines of a lower rank are offered room first.
        weight_ppm: Among lines of one rank, the line that holds least for its weight comes first;
            at least 1.
        sizes: Jobs, each with the weight of one of its tasks in what the line holds, at least 1;
            jobs that are not listed have weight 1.
        at_most: Jobs of which at most so many tasks may run or have succeeded, wherever they are;
            a job that is not listed has no such limit.
        chosen: Jobs, each with the indexes of the only tasks of it that stand in the line: its
            pilots, whose run times give estimates for the rest. All tasks of a job that is not
            listed stand in it.
        only: The members that it claims room on; all members of the pools if empty.
        open_to: Arriving jobs that stand in it at once, last, until a plan sees them; `None` for no
            job.
        patience_ms: A higher-ranked line whose head was passed over by this line so long ago, and
            has had no room since, is offered room first; `None` for never.
        by_arrival: Whether a job that comes later stands behind, unless it is more urgent.
        reason: Description of the line, for users. Like `notes` it does not count in comparisons.
        notes: Why jobs stand in it, for their users; for some of the jobs, or none.
    """

    pools: tuple[str, ...]
    jobs: tuple[JobId, ...]
    rank: int = 0
    weight_ppm: int = MILLION
    sizes: tuple[tuple[JobId, int], ...] = ()
    at_most: tuple[tuple[JobId, int], ...] = ()
    chosen: tuple[tuple[JobId, tuple[int, ...]], ...] = ()
    only: tuple[InstanceId | int, ...] = ()
    patience_ms: int | None = None
    by_arrival: bool = False
    open_to: Newcomers | None = None
    reason: str = field(default="", compare=False)
    notes: tuple[tuple[JobId, str], ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class LinePlace:
    """Where a job stands in a line.

    Attributes:
        place: Its index among the jobs of the line.
    """

    line: Line
    place: int
