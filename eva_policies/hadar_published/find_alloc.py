"""FIND_ALLOC of the paper's Algorithm 2: where a job would run, and what it would gain by that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from eva_policies.hadar_published.prices import PriceRange, curve
from eva_policies.hadar_published.requests import GpuRequest, Utility, weight, worth
from eva_policies.hadar_published.servers import Free, Kind, Take
from eva_wire.values.ids import MILLION, Family


class Candidate(StrEnum):
    """Which candidate is taken.

    Attributes:
        PAYOFF: The one of the best payoff, as in equation (4).
        COST: The cheapest, as in line 30 of Algorithm 2.
    """

    PAYOFF = "payoff"
    COST = "cost"


class Allocation(NamedTuple):
    """Where a job would run.

    Attributes:
        takes: On which servers.
        payoff: Its utility less what this costs.
        rate: Iterations per second of each task, at the pace of the slowest type.
    """

    takes: tuple[Take, ...]
    payoff: float
    rate: float


_Shape = tuple[int, tuple[tuple[Family, int], ...]]
"""How many tasks, and the types for them, fastest first, with the GPUs that a task takes there."""


@dataclass(frozen=True, slots=True)
class _Way:
    takes: tuple[Take, ...]
    cost: float
    slowest: Family


class Allocator:
    """Finds allocations at the prices of one round.

    Args:
        kinds: The kinds of servers.
        prices: Prices by type. Types without a price host no job.
        utility: Utility of jobs.
        communication_ppm: Charge for a job on several servers, in millionths of its utility.
        candidate: Rule for the choice among candidates.
    """

    def __init__(
        self,
        kinds: Sequence[Kind],
        prices: dict[Family, PriceRange],
        utility: Utility,
        communication_ppm: int,
        candidate: Candidate,
    ) -> None:
        self._kinds = kinds
        self._curves = [
            curve(prices[kind.family], kind.capacity) if kind.family in prices else ()
            for kind in kinds
        ]
        self._of_family: dict[Family, list[int]] = {}
        for number, kind in enumerate(kinds):
            if kind.family in prices:
                self._of_family.setdefault(kind.family, []).append(number)
        self._utility = utility
        self._spread = communication_ppm / MILLION
        self._by_cost = candidate is Candidate.COST
        self._known: dict[tuple[Free, _Shape], tuple[_Way, ...]] = {}

    def shape(self, ask: GpuRequest) -> _Shape:
        """Inputs of a job's candidates, beside the free GPUs."""
        order = sorted(ask.rates, key=lambda it: (-ask.rates[it], it))
        types = tuple((family, ask.gpus[family]) for family in order if family in self._of_family)
        return ask.tasks, types

    def find(self, ask: GpuRequest, shape: _Shape, free: Free) -> Allocation | None:
        """The allocation of a job, of whatever payoff; `None` if there is no room."""
        ways = self._known.get((free, shape))
        if ways is None:
            ways = self._known[free, shape] = self._ways(shape, free)
        if not ways:
            return None
        weight_of = weight(ask, self._utility)
        best: tuple[float, Allocation] | None = None
        for way in ways:
            rate = ask.rates[way.slowest]
            gain = worth(weight_of, ask.ends_s(rate))
            cost = way.cost + (self._spread * gain if len(way.takes) > 1 else 0.0)
            key = cost if self._by_cost else cost - gain
            if best is None or key < best[0]:
                best = key, Allocation(way.takes, gain - cost, rate)
        assert best is not None
        return best[1]

    def _ways(self, shape: _Shape, free: Free) -> tuple[_Way, ...]:
        """All candidates: for each type the fewest servers, fastest type first; then spread."""
        tasks, types = shape
        candidates = []
        for family, gpus in types:
            takes = self._packed(tasks, family, gpus, free)
            if takes:
                candidates.append(self._way(takes))
        takes = self._spread_out(tasks, types, free) if tasks > 1 else ()
        if takes:
            candidates.append(self._way(takes, types))
        return tuple(candidates)

    def _way(self, takes: tuple[Take, ...], types: Sequence[tuple[Family, int]] = ()) -> _Way:
        cost = sum(self._curves[take.kind][take.free] * take.gpus for take in takes)
        used = {self._kinds[take.kind].family for take in takes}
        slowest = [family for family, _ in types if family in used] or list(used)
        return _Way(takes, cost, slowest[-1])

    def _packed(self, tasks: int, family: Family, gpus: int, free: Free) -> tuple[Take, ...]:
        """The fewest servers of a type; among servers that hold all remaining tasks the fullest.

        Returns:
            The servers; empty if there is no room.
        """
        kinds = self._of_family[family]
        rooms = sorted((room, kind) for kind in kinds for room in _rooms(free[kind], gpus))
        takes, remaining = [], tasks
        while remaining:
            last = next((room for room in rooms if room[0] >= remaining * gpus), None)
            if last is None and rooms:
                last = rooms[-1]
            if last is None:
                return ()
            rooms.remove(last)
            put = min(remaining, last[0] // gpus)
            takes.append(Take(last[1], last[0], put, put * gpus))
            remaining -= put
        return tuple(takes)

    def _spread_out(
        self, tasks: int, types: Sequence[tuple[Family, int]], free: Free
    ) -> tuple[Take, ...]:
        """GPUs of the fastest types that are free, on the emptiest servers first.

        Returns:
            The servers; empty if there is no room.
        """
        takes, remaining = [], tasks
        for family, gpus in types:
            kinds = self._of_family[family]
            rooms = [
                (self._curves[kind][room], -room, kind)
                for kind in kinds
                for room in _rooms(free[kind], gpus)
            ]
            for _, room, kind in sorted(rooms):
                put = min(remaining, -room // gpus)
                takes.append(Take(kind, -room, put, put * gpus))
                remaining -= put
                if not remaining:
                    return tuple(takes)
        return ()


def _rooms(row: Sequence[int], gpus: int) -> list[int]:
    """The free GPUs of each server of a kind with room for a task."""
    return [room for room in range(gpus, len(row)) for _ in range(row[room])]
