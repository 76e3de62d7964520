"""The dynamic programme of the paper's Algorithm 2, with so many branches kept.

For one job after the other it either takes what FIND_ALLOC finds, or passes it over. Branches that
leave the same free are one: of them the one that earns more is kept. The paper keeps all branches,
of which there may be two to the power of the jobs; here the best few are kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import NamedTuple

from eva_policies.hadar_published.find_alloc import Allocation, Allocator
from eva_policies.hadar_published.requests import GpuRequest
from eva_policies.hadar_published.servers import Free, is_full, taken


class Refused(StrEnum):
    """Treatment of a job for which FIND_ALLOC finds no allocation that pays.

    Attributes:
        WAITS: The job waits, and the next one is tried.
        ENDS: The job waits, and so do all behind it in that branch, as lines 7 to 9 say.
        FILLS: The job waits until all have been tried, and then gets remaining GPUs, at any price.
    """

    WAITS = "waits"
    ENDS = "ends"
    FILLS = "fills"


class Given(NamedTuple):
    """A job that gets GPUs."""

    ask: GpuRequest
    allocation: Allocation


class _ServerBranch(NamedTuple):
    earned: float
    free: Free
    given: _Chain | None


class _Chain(NamedTuple):
    last: Given
    before: _Chain | None


def allocate(
    asks: Iterable[GpuRequest], allocator: Allocator, free: Free, most: int, refused: Refused
) -> list[Given]:
    """Choose allocations for the queue.

    Args:
        asks: The queue, in its order.
        allocator: Allocator of this round.
        free: Free GPUs at first.
        most: Number of branches kept.
        refused: Treatment of jobs that do not pay.

    Returns:
        Allocations in the order of the queue, those that fill remaining room last.
    """
    asks = list(asks)
    best = _best(asks, allocator, free, most, refused)
    given = _given(best)
    if refused is Refused.FILLS:
        given += _filled(asks, allocator, best.free, {grant.ask.name for grant in given})
    return given


def _best(
    asks: list[GpuRequest], allocator: Allocator, free: Free, most: int, refused: Refused
) -> _ServerBranch:
    live = [_ServerBranch(0.0, free, None)]
    ended: list[_ServerBranch] = []
    for ask in asks:
        shape = allocator.shape(ask)
        branches: dict[Free, _ServerBranch] = {}
        for branch in live:
            allocation = allocator.find(ask, shape, branch.free)
            if allocation is not None and allocation.payoff > 0:
                takes = _taking(branch, ask, allocation)
                if is_full(takes.free):
                    ended.append(takes)
                else:
                    _keep(branches, takes)
                if most == 1:
                    continue
            elif refused is Refused.ENDS:
                ended.append(branch)
                continue
            _keep(branches, branch)
        live = sorted(branches.values(), key=lambda it: -it.earned)[:most]
        if len(ended) > 1:
            ended = [max(ended, key=lambda it: it.earned)]
        if not live:
            break
    return max([*ended, *live], key=lambda it: it.earned)


def _taking(branch: _ServerBranch, ask: GpuRequest, allocation: Allocation) -> _ServerBranch:
    return _ServerBranch(
        branch.earned + allocation.payoff,
        taken(branch.free, allocation.takes),
        _Chain(Given(ask, allocation), branch.given),
    )


def _keep(found: dict[Free, _ServerBranch], branch: _ServerBranch) -> None:
    rival = found.get(branch.free)
    if rival is None or branch.earned > rival.earned:
        found[branch.free] = branch


def _given(branch: _ServerBranch) -> list[Given]:
    grants, chain = [], branch.given
    while chain is not None:
        grants.append(chain.last)
        chain = chain.before
    return grants[::-1]


def _filled(
    asks: list[GpuRequest], allocator: Allocator, free: Free, without: set[str]
) -> list[Given]:
    """Allocations that find room, though they do not pay."""
    fillers = []
    for ask in asks:
        if ask.name in without or is_full(free):
            continue
        allocation = allocator.find(ask, allocator.shape(ask), free)
        if allocation is not None:
            fillers.append(Given(ask, allocation))
            free = taken(free, allocation.takes)
    return fillers
