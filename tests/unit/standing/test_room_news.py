"""Room is looked for whenever something has changed for which it may be found."""

from __future__ import annotations

import pytest

from eva_master.control.standing.queue import Queue, Shape
from eva_master.control.standing.rooms import MemberRoom
from eva_master.control.standing.standing import Head, Standing
from eva_master.model.job import Program, TaskSpec
from eva_master.model.planning.standing import Line, Pool
from eva_master.model.records import TaskRun
from eva_master.model.resources import Resources
from eva_wire.values.ids import Family, InstanceId, JobId, Millis, Workload, run_id
from eva_wire.values.states import RunState

FAMILY = Family("c")
ONE = Resources(0, 1000, 1024)
SHAPE: Shape = ((FAMILY, ONE),)
TASK = TaskSpec(Workload("w"), Program("true"), SHAPE)
JOB = JobId("job")
FIRST, SECOND = InstanceId("first"), InstanceId("second")


def _standing(begun: tuple[int, ...], only: tuple[InstanceId, ...] = ()) -> Standing:
    """Two members, with a line of one job, whose three tasks wait but for those that have begun."""
    standing, line = Standing(), Line(("p",), (JOB,), only=only)
    pools = (Pool("p", (FIRST, SECOND), "why"),)
    queue = Queue((TASK,) * 3, begun)
    standing.state(pools, (line,), lambda _: queue, lambda _: ())
    return standing


def _next(standing: Standing, *, ready: bool = True) -> Head | None:
    """The next task that takes room, of which each member has enough once it is ready."""
    room = MemberRoom("p", FAMILY, ONE) if ready else None
    return standing.next(lambda _: room, lambda _: True, Millis(0))


def _task(index: int, state: RunState, place: InstanceId | None) -> TaskRun:
    return TaskRun(run_id(JOB, index), JOB, index, ((state.value, 0),), target=place)


@pytest.mark.parametrize("only", [(), (FIRST, SECOND)])
def test_tasks_that_wait_again_find_room_that_was_free_before(only: tuple[InstanceId, ...]) -> None:
    standing = _standing((0, 1, 2), only)
    assert _next(standing) is None
    for index in (1, 2):
        standing.follow(_task(index, RunState.WAITING, None), Millis(0))
    standing.touch_job(JOB)
    assert _next(standing) == Head(JOB, 1, FIRST)
    standing.follow(_task(1, RunState.RUNNING, FIRST), Millis(0))
    assert _next(standing) == Head(JOB, 2, FIRST)


def test_a_second_task_finds_room_that_is_left_by_the_first() -> None:
    standing = _standing(())
    assert _next(standing, ready=False) is None
    standing.touch_instance(FIRST)
    standing.touch_instance(SECOND)
    assert _next(standing) == Head(JOB, 0, FIRST)
    standing.follow(_task(0, RunState.RUNNING, FIRST), Millis(0))
    assert _next(standing) == Head(JOB, 1, FIRST)
