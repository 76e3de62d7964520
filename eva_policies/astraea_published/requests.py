"""Request of a job to a round of scheduling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from eva_master.model.resources import Resources
from eva_wire.values.ids import Family

Lengths = Callable[[Family, int, bool], int]
"""How many slots it takes on a type with so many members, which are on several servers or not."""


@dataclass(frozen=True, slots=True)
class Request:
    """Request of a gang, or of a task of an array.

    Attributes:
        id: Id of its first task run.
        tenant: The tenant whose quota it may use.
        need: Demand of a member, by type.
        least: Fewest members. most: Most members.
        lengths: Function that gives its length.
        worth: Its worth, in micro-dollars, if it is done at the end of each slot of the round.
        came: Sort key by arrival.
        trains: Whether it needs parameter servers.
        shortest: Number of slots that it takes in an empty fleet; 0 if it finds no room even then.
    """

    id: str
    tenant: str
    need: Mapping[Family, Resources]
    least: int
    most: int
    lengths: Lengths
    worth: tuple[int, ...]
    came: tuple[int, int, str]
    trains: bool = False
    shortest: int = 1

    @property
    def worthless(self) -> bool:
        """Whether its worth is zero when it is done, even in an empty fleet."""
        return self.shortest <= len(self.worth) and not self.worth[self.shortest - 1]


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Bandwidth of a worker, and of a parameter server, in megabits per second."""

    worker_mbps: int
    ps_mbps: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """Planned time and place of a job.

    Attributes:
        family: The type.
        start: First slot of the round.
        end: The slot after its last one.
        members: Number of members on each server, by its number.
        ps: Server of its parameter servers, and their number; `None` if it has none.
        cost: Its cost at posted prices, in micro-dollars.
        payoff: Its worth at its end, less the cost.
    """

    family: Family
    start: int
    end: int
    members: tuple[tuple[int, int], ...]
    ps: tuple[int, int] | None
    cost: int
    payoff: int

    @property
    def size(self) -> int:
        """Number of the members of its gang."""
        return sum(count for _, count in self.members)
