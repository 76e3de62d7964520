"""Lines that are limited to members, as many of them as there are members: the queue of each."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from eva_master.control.standing.claim import LineClaim
from eva_master.control.standing.queue import Queue, Shape
from eva_master.control.standing.rooms import MemberRoom
from eva_master.control.standing.standing import Standing
from eva_master.model.job import Program, TaskSpec
from eva_master.model.planning.standing import Line, Pool
from eva_master.model.records import TaskRun
from eva_master.model.resources import Resources
from eva_wire.values.ids import Family, InstanceId, JobId, Millis, Workload, run_id
from eva_wire.values.states import RunState
from tests.drawing import drawn

ONE = Resources(0, 1000, 1024)
SHAPE: Shape = ((Family("c"), ONE),)
TASK = TaskSpec(Workload("w"), Program("true"), SHAPE)
POOLS = ("near", "far")
_Start = tuple[str, int, str]


class Members:
    """Some members with slots each; what `Standing` says is done at once."""

    def __init__(self, slots: dict[str, int], waiting: dict[str, int]) -> None:
        self.slots = slots
        self.waiting = {job: set(range(tasks)) for job, tasks in waiting.items()}
        self.places: dict[tuple[str, int], str] = {}
        self._total = waiting
        self.standing = Standing()

    def pool(self, member: str) -> str:
        """The pool of a member: every second one is in the preferred one."""
        return POOLS[sorted(self.slots).index(member) % 2]

    def state(self, lines: tuple[Line, ...]) -> None:
        """A plan states lines."""
        names = {
            name: tuple(InstanceId(it) for it in self.slots if self.pool(it) == name)
            for name in POOLS
        }
        pools = tuple(Pool(name, members, "why") for name, members in names.items())
        self.standing.state(pools, lines, self._queue, self._in_hand)

    def free(self, member: str) -> int:
        """How many slots are free."""
        return self.slots[member] - Counter(self.places.values())[member]

    def fill(self) -> list[_Start]:
        """All starts, in order."""
        found = []
        while (head := self.standing.next(self._room, lambda _: True, Millis(0))) is not None:
            self.waiting[head.job].discard(head.index)
            self.places[head.job, head.index] = head.instance
            self._follow(head.job, head.index, head.instance, RunState.RUNNING)
            found.append((str(head.job), head.index, str(head.instance)))
        return found

    def end(self, task: tuple[str, int], *, again: bool) -> None:
        """A task has ended, or waits again."""
        member = self.places.pop(task)
        if again:
            self.waiting[task[0]].add(task[1])
        self._follow(*task, None, RunState.WAITING if again else RunState.SUCCEEDED)
        self.standing.touch_instance(InstanceId(member))

    def _queue(self, job: JobId) -> Queue:
        begun = set(range(self._total[job])) - self.waiting[job]
        return Queue((TASK,) * self._total[job], begun)

    def _run(self, job: str, index: int, place: str | None, state: RunState) -> TaskRun:
        target = None if place is None else InstanceId(place)
        history = ((state.value, 0),)
        return TaskRun(run_id(JobId(job), index), JobId(job), index, history, target=target)

    def _in_hand(self, job: JobId) -> list[TaskRun]:
        return [
            self._run(*task, place, RunState.RUNNING)
            for task, place in self.places.items()
            if task[0] == job
        ]

    def _room(self, instance: InstanceId) -> MemberRoom:
        free = self.free(instance)
        room = Resources(0, 1000 * free, 1024 * free)
        return MemberRoom(self.pool(instance), Family("c"), room)

    def _follow(self, job: str, index: int, place: str | None, state: RunState) -> None:
        self.standing.follow(self._run(job, index, place, state), Millis(0))
        self.standing.touch_job(JobId(job))
        if place is not None:
            self.standing.touch_instance(InstanceId(place))


def _expected(members: Members, lines: tuple[Line, ...]) -> list[_Start]:
    """The same by going through all lines, jobs and members at each start."""
    places, waiting = dict(members.places), {job: set(it) for job, it in members.waiting.items()}

    def claimed(line: Line) -> list[str]:
        pooled = [it for it in members.slots if members.pool(it) in line.pools]
        return [it for it in pooled if not line.only or it in line.only]

    def free(member: str) -> int:
        return members.slots[member] - Counter(places.values())[member]

    def turn(number: int) -> tuple[int, Fraction, int]:
        line, there = lines[number], claimed(lines[number])
        held = sum(job in line.jobs and at in there for (job, _), at in places.items())
        return line.rank, Fraction(held, line.weight_ppm), number

    def start() -> _Start | None:
        for number in sorted(range(len(lines)), key=turn):
            line = lines[number]
            rooms = [it for it in claimed(line) if free(it) > 0]
            job = next((it for it in line.jobs if waiting[it]), None)
            if rooms and job is not None:
                near = min(line.pools.index(members.pool(it)) for it in rooms)
                first = [it for it in rooms if line.pools.index(members.pool(it)) == near]
                return job, min(waiting[job]), min(first, key=lambda it: (free(it), it))
        return None

    found = []
    while (it := start()) is not None:
        waiting[it[0]].discard(it[1])
        places[it[0], it[1]] = it[2]
        found.append(it)
    return found


@st.composite
def _lines(draw: st.DrawFn) -> tuple[Line, ...]:
    def line() -> Line:
        jobs = tuple(JobId(it) for it in draw(st.permutations("abc"))[: draw(st.integers(1, 3))])
        only = draw(st.sets(st.sampled_from("uvwxyz"), min_size=1, max_size=3))
        pools = draw(st.permutations(POOLS))[: draw(st.integers(1, 2))]
        rank, weight = draw(st.integers(0, 2)), draw(st.sampled_from((1, 2)))
        limited = tuple(map(InstanceId, sorted(only)))
        return Line(tuple(pools), jobs, rank=rank, weight_ppm=weight, only=limited)

    return tuple(line() for _ in range(draw(st.integers(1, 8))))


@drawn(60)
@given(_lines(), _lines(), st.data())
def test_each_gives_its_head_the_room_of_its_members(
    first: tuple[Line, ...], second: tuple[Line, ...], data: st.DataObject
) -> None:
    slots = {name: data.draw(st.integers(0, 3)) for name in "uvwxyz"}
    members = Members(slots, {name: data.draw(st.integers(1, 6)) for name in "abc"})
    for lines in (first, second):
        members.state(lines)
        expected = _expected(members, lines)
        assert members.fill() == expected
        for _ in range(3):
            running = sorted(members.places)
            ending = data.draw(st.sets(st.sampled_from(running))) if running else set()
            for task in sorted(ending):
                members.end(task, again=data.draw(st.booleans()))
            expected = _expected(members, lines)
            assert members.fill() == expected


def test_what_becomes_free_is_looked_at_by_the_lines_of_its_member_alone() -> None:
    names = [f"m{number:03d}" for number in range(500)]
    members = Members(dict.fromkeys(names, 1), {"a": 900})
    lines = tuple(Line(POOLS, (JobId("a"),), only=(InstanceId(it),)) for it in names)
    members.state(lines)
    assert len(members.fill()) == 500
    looked = Counter[str]()
    inner = members._room

    def room(instance: InstanceId) -> MemberRoom:
        looked[instance] += 1
        return inner(instance)

    members._room = room  # type: ignore[method-assign]
    members.end(("a", 7), again=False)
    assert members.fill() == [("a", 500, "m007")]
    assert set(looked) == {"m007"}


@given(held=st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)), data=st.data())
def test_lines_of_one_rank_compare_what_they_hold_for_their_weights(
    held: tuple[int, int], data: st.DataObject
) -> None:
    weights = [data.draw(st.integers(1, 2**63)) for _ in held]
    claims = [
        LineClaim(it, Line(("p",), (), weight_ppm=weight), {}) for it, weight in enumerate(weights)
    ]
    for claim, count in zip(claims, held, strict=True):
        claim.held = count
    shares = [Fraction(count, weight) for count, weight in zip(held, weights, strict=True)]
    first, second = claims
    assert (first.order < second.order) == (shares[0] <= shares[1])
