"""Pools of instances that stay, and lines of tasks for the room that becomes free there."""

from __future__ import annotations

from dataclasses import dataclass, field

from eva_master.model.fleet.partitions import ShortJobs
from eva_master.model.ids import MILLION, InstanceId, JobId
from eva_master.model.job import Latency


def full_name(partition: str, pool: str) -> str:
    """The name of a pool in the whole cluster: partitions may have pools of one name."""
    return f"{partition}/{pool}" if partition and pool else pool


@dataclass(frozen=True, slots=True)
class Pool:
    """Instances that stay though they are empty, until a plan no longer states them.

    Those of a pool that is lent do not: their free room can be claimed by lines for as long as
    others have them there, and that is all that is changed by being stated.

    Attributes:
        name: Of the pool, as users see it.
        members: Live instances, and new ones by their keys in the plan.
        reason: Why they stay, for the user.
        closed: Those of the members that take nobody from a line for now.
        lent: Whether it is lent. Its members are live, and in no other pool.
        room_for: For how many tasks an operator has it keep room, whether these are there or not.
    """

    name: str
    members: tuple[InstanceId | int, ...]
    reason: str
    closed: tuple[InstanceId | int, ...] = ()
    lent: bool = False
    room_for: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Newcomers:
    """Which jobs a line takes in that arrive.

    Attributes:
        short: Those that are short by this; `None` for all that can stand in a line.
    """

    short: ShortJobs | None = None

    def take(self, latency: Latency, task_ms: int | None) -> bool:
        """Whether a job is one of them; see `ShortJobs.has`."""
        return self.short is None or self.short.has(latency, task_ms)


@dataclass(frozen=True, slots=True)
class Line:
    """A claim of waiting tasks on room that becomes free in pools.

    The head of a line is the first waiting task that fits. Tasks of gangs of several cannot stand
    in a line, nor can those of elastic gangs, whatever their size. What a line holds is the number
    of its jobs' tasks on the members that it claims, whoever gave them their places; `sizes` says
    what each counts for.

    Attributes:
        pools: Names of the pools whose room it claims, the preferred ones first.
        jobs: Whose waiting tasks stand in it: those of the first, by index, then of the next.
        rank: Lines of a lower rank are offered room first.
        weight_ppm: Of lines of one rank the one that holds least for its weight comes first; at
            least 1.
        sizes: Jobs with what one of their tasks counts for in what the line holds, at least 1; that
            of a job that is not listed counts for 1.
        at_most: Jobs of which at most so many tasks may run or have succeeded, wherever they are;
            a job that is not listed has no such limit.
        chosen: Jobs of which these tasks alone stand in it, by their indexes: their pilots, by
            which estimates go first. All tasks of a job that is not listed stand in it.
        only: The members that it claims room on; all members of the pools if empty.
        open_to: Which jobs that arrive stand in it at once, last, until a plan is about them;
            `None` for none.
        patience_ms: The head of a line of a higher rank that could have had room which this one
            took, since so long ago, and has had none since, is offered room first; `None` for
            never.
        by_arrival: Whether a job that comes later stands behind, unless it is more urgent.
        reason: What the line is, for users. Like `notes` it does not count when lines are compared.
        notes: Why jobs stand in it, for their users; some of the jobs, or none.
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
