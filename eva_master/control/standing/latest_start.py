"""When a task that stands in a line starts at the latest: Graham's bound for list scheduling.

While the task waits, each slot is busy with what ran there at the beginning or with a task that
goes before it. So its wait is no longer than all that work divided by the number of slots. One task
of the longest kind is added for what such a reckoning leaves out: a task that ends late, or is
handed its slot late. Tasks that end early, further slots and tasks that never start only shorten
it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from eva_master.model.resources import NOTHING, Resources
from eva_wire.values.ids import Family

Needs = Mapping[Family, Resources]
"""Resources that a task needs on each family that can host it."""


@dataclass(frozen=True, slots=True)
class BoundMember:
    """An instance that counts for the bound.

    Attributes:
        slots: Number of tasks that have room there at a time, whichever tasks they are.
        left_ms: Remaining time of each task that runs there.
    """

    slots: int
    left_ms: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Ahead:
    """Tasks of one job that go before the task.

    Attributes:
        tasks: How many.
        each_ms: How long one of them takes at most.
    """

    tasks: int
    each_ms: int


@dataclass(frozen=True, slots=True)
class Bound:
    """The longest possible wait of a task.

    Attributes:
        slots: Number of slots that the bound is based on.
        work_ms: Work that precedes the task, and remaining work on these slots.
    """

    slots: int
    work_ms: int
    wait_ms: int


def bound(members: Iterable[BoundMember], ahead: Sequence[Ahead]) -> Bound | None:
    """The lowest bound for a task over subsets of the members.

    Any subset of the members gives a valid bound, so members with long tasks are left out where
    that lowers the bound.

    Args:
        members: Members on which the task has room once they are empty.
        ahead: Tasks that precede it.

    Returns:
        `None` if there are no slots.
    """
    before = sum(group.tasks * group.each_ms for group in ahead)
    longest = max((group.each_ms for group in ahead if group.tasks), default=0)
    best, work, slots = None, before, 0
    usable = (member for member in members if member.slots > 0)
    for member in sorted(usable, key=lambda it: (sum(it.left_ms) / it.slots, it.left_ms)):
        work += sum(member.left_ms)
        slots += member.slots
        longest = max(longest, *member.left_ms, 0)
        wait = -(-work // slots) + longest
        if best is None or wait <= best.wait_ms:
            best = Bound(slots, work, wait)
    return best


def slots_of(
    capacity: Resources, family: Family, own: Iterable[Needs], others: Iterable[Needs]
) -> int:
    """Number of tasks that surely have room on an instance at a time, in any combination.

    Args:
        capacity: Capacity of the instance.
        family: Its family.
        own: Needs of the tasks in question; each must have room there.
        others: Needs of other tasks that may be there meanwhile; tasks without room there are left
            out.

    Returns:
        With fewer tasks on the instance there is room for each task in question; 0 if one of these
        never has room.
    """
    largest = NOTHING
    for needs in own:
        need = needs.get(family)
        if need is None or not need.fits(capacity):
            return 0
        largest = largest.covering(need)
    for needs in others:
        need = needs.get(family)
        if need is not None and need.fits(capacity):
            largest = largest.covering(need)
    return largest.times_in(capacity) or 1
