"""No list scheduler starts a task later than its bound, whatever runs, ends or comes besides."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from eva_master.control.standing.latest_start import Ahead, Bound, BoundMember, bound, slots_of
from eva_master.model.resources import Resources
from eva_wire.values.ids import Family

C = Family("c")
ASKED = -1
"""The number of the task that is asked about."""


@dataclass
class Machine:
    """An instance of the scheduler's, with the ends of the tasks that are there."""

    cpus: int
    taken: list[tuple[int, int]] = field(default_factory=list)
    """When each task there ends, and what it takes."""
    opens_ms: int = 0
    closes_ms: int = 10**9

    def free(self, now: int) -> int:
        if not self.opens_ms <= now < self.closes_ms:
            return 0
        return self.cpus - sum(cpus for end, cpus in self.taken if end > now)


def start_of(line: list[tuple[int, int, int]], machines: list[Machine], most_ms: int) -> int:
    """When the task that is asked about starts, millisecond by millisecond.

    Args:
        line: Of each task its number, what it takes, and for how long; the first that fits goes
            first.
        machines: Where they run.
        most_ms: When to give up.
    """
    for now in range(most_ms + 1):
        for machine in machines:
            while True:
                fits = (it for it in line if it[1] <= machine.free(now))
                task = next(fits, None)
                if task is None:
                    break
                line.remove(task)
                machine.taken.append((now + task[2], task[1]))
                if task[0] == ASKED:
                    return now
    return most_ms + 1


times = st.integers(1, 30)
members = st.lists(
    st.tuples(st.integers(1, 3), st.lists(times, max_size=3)).map(
        lambda it: BoundMember(it[0], tuple(it[1][: it[0]]))
    ),
    min_size=1,
    max_size=4,
)


@given(
    members,
    st.lists(st.lists(times, min_size=1, max_size=4), max_size=5),
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), max_size=3),
    st.lists(times, max_size=5),
)
def test_no_start_is_later_than_the_bound(
    there: list[BoundMember],
    jobs: list[list[int]],
    spot: list[tuple[int, int]],
    behind: list[int],
) -> None:
    found = bound(there, [Ahead(len(it), max(it)) for it in jobs])
    assert found is not None
    machines = [Machine(it.slots, [(left, 1) for left in it.left_ms]) for it in there]
    # Instances that come and go help, or do not.
    machines += [Machine(1, [], opens, opens + long) for opens, long in spot]
    ahead = [took for it in jobs for took in it]
    line = [(number, 1, took) for number, took in enumerate([*ahead])]
    line += [(ASKED, 1, 1), *((100 + number, 1, took) for number, took in enumerate(behind))]
    assert start_of(line, machines, found.wait_ms) <= found.wait_ms


needs = st.integers(1, 4)


@given(
    st.lists(st.tuples(st.integers(4, 9), st.lists(st.tuples(times, needs), max_size=4))),
    st.lists(st.tuples(times, needs), max_size=8),
    needs,
)
def test_tasks_of_several_sizes_have_as_many_slots_as_the_largest_leaves(
    boxes: list[tuple[int, list[tuple[int, int]]]], ahead: list[tuple[int, int]], own: int
) -> None:
    machines, there = [], []
    others = [{C: Resources(0, cpus, 1)} for _, cpus in ahead]
    for cpus, tasks in boxes:
        machine = Machine(cpus)
        for left, need in tasks:
            if need <= machine.free(0):
                machine.taken.append((left, need))
        beside = [{C: Resources(0, need, 1)} for _, need in machine.taken]
        asked = [{C: Resources(0, own, 1)}]
        slots = slots_of(Resources(0, cpus, 100), C, asked, [*others, *beside])
        there.append(BoundMember(slots, tuple(left for left, _ in machine.taken)))
        machines.append(machine)
    found = bound(there, [Ahead(1, took) for took, _ in ahead])
    assert (found is None) is (not boxes)
    if found is not None:
        line = [(number, need, took) for number, (took, need) in enumerate(ahead)]
        assert start_of([*line, (ASKED, own, 1)], machines, found.wait_ms) <= found.wait_ms


def test_the_bound_is_the_work_by_the_slots_and_one_task() -> None:
    # Two slots; 10 s and 4 s are left of what runs, and three tasks of 20 s go before.
    assert bound([BoundMember(2, (10, 4))], [Ahead(3, 20)]) == Bound(2, 74, 37 + 20)
    assert bound([BoundMember(1)], []) == Bound(1, 0, 0)
    assert bound([], [Ahead(1, 5)]) is None
    assert bound([BoundMember(0, (3,))], []) is None


def test_where_a_long_task_runs_does_not_count() -> None:
    short = BoundMember(2, (10, 10))
    assert bound([BoundMember(2, (100_000,)), short], [Ahead(2, 10)]) == bound(
        [short], [Ahead(2, 10)]
    )


def test_who_must_have_room_and_who_may_be_there() -> None:
    room = Resources(0, 8000, 16_384)
    small, large = {C: Resources(0, 1000, 1024)}, {C: Resources(0, 3000, 1024)}
    assert slots_of(room, C, [small], []) == 8
    assert slots_of(room, C, [small], [large]) == 2
    assert slots_of(room, C, [small, large], []) == 2
    # Who never fits there is never there.
    assert slots_of(room, C, [small], [{C: Resources(0, 9000, 1024)}, {Family("g"): room}]) == 8
    assert slots_of(room, C, [{C: Resources(1, 1000, 1024)}], []) == 0
    assert slots_of(room, C, [{Family("g"): room}], []) == 0
    assert slots_of(room, C, [{C: Resources(0, 0, 0)}], []) == 1
