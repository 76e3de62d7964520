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

from eva_master.model.ids import Family
from eva_master.model.resources import NOTHING, Resources

Needs = Mapping[Family, Resources]
"""What a task needs, by the families that it can run on."""


@dataclass(frozen=True, slots=True)
class Member:
    """An instance that counts for the bound.

    Attributes:
        slots: So many tasks at a time have room there, whichever they are.
        left_ms: What is left of each task that runs there.
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
    """How long the task waits at most.

    Attributes:
        slots: Those that count.
        work_ms: What goes before it, and what is left of what runs on these slots.
    """

    slots: int
    work_ms: int
    wait_ms: int


def bound(members: Iterable[Member], ahead: Sequence[Ahead]) -> Bound | None:
    """The bound for a task, by those of the members with which it is lowest.

    Whatever members are left out, the others are a bound by themselves. So those on which long
    tasks run are left out where that lowers it.

    Args:
        members: On which it has room once they are empty.
        ahead: Who goes before it.

    Returns:
        `None` if there are no slots.
    """
    before = sum(one.tasks * one.each_ms for one in ahead)
    longest = max((one.each_ms for one in ahead if one.tasks), default=0)
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
    """How many tasks at a time surely have room on an instance, whichever of some they are.

    Args:
        capacity: Of the instance.
        family: Its family.
        own: What the tasks need that are asked about; each must have room there.
        others: What those need that may be there meanwhile; who has no room there is left out.

    Returns:
        With fewer tasks there each of them has room; 0 if one of the first never has.
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
