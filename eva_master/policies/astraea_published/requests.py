"""What a job asks of a round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from eva_master.model.ids import Family
from eva_master.model.resources import Resources

Lengths = Callable[[Family, int, bool], int]
"""How many slots it takes on a type with so many members, which are on several servers or not."""


@dataclass(frozen=True, slots=True)
class Request:
    """A gang, or a task of an array.

    Attributes:
        id: Of its first task run.
        tenant: Whose quota it may use.
        need: What a member needs, by type.
        least: Fewest members. most: Most members.
        lengths: How long it takes.
        worth: What it is worth, in micro-dollars, if it is done at the end of each slot of the
            round.
        came: Who comes first.
        trains: Whether it needs parameter servers.
        shortest: How many slots it takes where nothing is in use; 0 if it finds no room even then.
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
        """Whether it is worth nothing when it is done, though nobody is in its way."""
        return self.shortest <= len(self.worth) and not self.worth[self.shortest - 1]


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """Of a worker, and of a parameter server, in megabits per second."""

    worker_mbps: int
    ps_mbps: int

    def servers_for(self, workers: int) -> int:
        """How many parameter servers carry what workers on other machines send."""
        return -(-workers * self.worker_mbps // self.ps_mbps)


@dataclass(frozen=True, slots=True)
class Schedule:
    """When and where a job is to run.

    Attributes:
        family: On which type.
        start: First slot of the round.
        end: The slot after its last one.
        members: How many on each server, by its number.
        ps: Where its parameter servers are, and how many; `None` if it has none.
        cost: What that costs at posted prices, in micro-dollars.
        payoff: What it is worth then, less the cost.
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
        """How many members it has."""
        return sum(count for _, count in self.members)
