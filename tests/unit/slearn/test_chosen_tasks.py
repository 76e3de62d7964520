"""Lines in which some tasks of a job stand alone: whose turn it is, and what a plan may say."""

from __future__ import annotations

from dataclasses import replace

from eva_master.control.planning.validate_plan import reconcile
from eva_master.control.standing.queue import Queue
from eva_master.control.standing.rooms import MemberRoom
from eva_master.control.standing.standing import Standing
from eva_master.model.catalog import Purchase
from eva_master.model.planning.plan import Plan
from eva_master.model.planning.standing import Line, Pool
from eva_master.model.records import TaskRun
from eva_master.model.resources import Resources
from eva_master.testing.job_views import changed
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import Family, InstanceId, JobId, Millis, run_id
from eva_wire.values.states import RunState
from tests.fakes.snapshots import Cluster, offer, task

NODE = replace(offer("n.4", (0, 4, 4), 0.1), purchase=Purchase.OWNED, limit=2)
ONE = task("w", any=(0, 1, 1))
A, B = JobId("a"), JobId("b")
HOST = InstanceId("i")


class Slots:
    """One member with some slots, and jobs of ten tasks."""

    def __init__(self, slots: int, *lines: Line) -> None:
        self.free = slots
        self._standing = Standing()
        self._queues = {job: Queue((ONE,) * 10, ()) for job in (A, B)}
        self.state(*lines)

    def state(self, *lines: Line) -> None:
        """A plan states lines."""
        pool = Pool("p", (HOST,), "why")
        self._standing.state((pool,), lines, self._queues.__getitem__, lambda _: ())

    def fill(self) -> list[str]:
        """Who takes room, in this order."""
        began = []
        while (head := self._standing.next(self._room, lambda _: True, Millis(0))) is not None:
            began.append(run_id(head.job, head.index))
            self.free -= 1
            self._follow(head.job, head.index, HOST, RunState.RUNNING)
        return [str(it) for it in began]

    def leave(self, job: JobId, index: int, state: RunState = RunState.SUCCEEDED) -> None:
        """A task has ended, or waits again."""
        self.free += 1
        self._follow(job, index, None, state)

    def _room(self, _: InstanceId) -> MemberRoom:
        return MemberRoom("p", Family("any"), Resources(0, 1_000 * self.free, 1_024 * self.free))

    def _follow(self, job: JobId, index: int, place: InstanceId | None, state: RunState) -> None:
        run = TaskRun(run_id(job, index), job, index, ((state.value, 0),), target=place)
        self._standing.follow(run, Millis(0))
        self._standing.touch_job(job)
        self._standing.touch_instance(HOST)


def test_tasks_that_are_not_chosen_leave_room_to_others_or_free() -> None:
    slots = Slots(5, Line(("p",), (A,), chosen=((A, (7, 2)),)))
    assert slots.fill() == ["a/7", "a/2"], "in the order in which they are chosen"
    slots = Slots(5, Line(("p",), (A, B), chosen=((A, (7, 2)),)))
    assert slots.fill() == ["a/7", "a/2", "b/0", "b/1", "b/2"]


def test_the_others_stand_in_a_line_of_a_later_rank() -> None:
    first = Line(("p",), (A, B), chosen=((A, (7,)), (B, (0, 9))))
    slots = Slots(5, first, Line(("p",), (B, A), rank=1))
    assert slots.fill() == ["a/7", "b/0", "b/9", "b/1", "b/2"]
    slots.leave(B, 1)
    assert slots.fill() == ["b/3"]
    # A chosen task that failed goes before all others again.
    slots.leave(A, 7, RunState.WAITING)
    assert slots.fill() == ["a/7"]


def test_none_chosen_is_not_all() -> None:
    slots = Slots(5, Line(("p",), (A,), chosen=((A, ()),)))
    assert slots.fill() == []
    slots.state(Line(("p",), (A,)))
    assert len(slots.fill()) == 5


def test_what_is_chosen_that_is_not_there_is_left_out() -> None:
    cluster = Cluster(NODE).instance("n1", "n.4")
    cluster.job("a", *[ONE] * 3, kind=JobKind.ARRAY).job("gang", ONE, ONE)
    seen = cluster.snapshot()
    seen = replace(seen, jobs=tuple(changed(it, size=len(it.runs)) for it in seen.jobs))
    gone, gang = JobId("gone"), JobId("gang")
    line = Line(
        ("p",),
        (A, gone, gang),
        chosen=((A, (2, 3, -1, 0)), (gone, (0,)), (gang, (0,)), (B, (1,))),
    )
    plan = Plan(pools=(Pool("p", (InstanceId("n1"),), "why"),), lines=(line,))
    (found,) = reconcile(seen, plan).lines
    assert (found.jobs, found.chosen) == ((A,), ((A, (2, 0)),))
