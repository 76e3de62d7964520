"""Which finished tasks of an array tell how long the others take."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eva_master.control.state.finished import FinishedTasks, Kind
from eva_master.learning.run_times.posterior import Finished
from eva_master.model.job import JobSpec
from eva_master.model.records import Job, TaskRun
from eva_wire.values.bounds import JobKind
from eva_wire.values.ids import JobId, Millis, Workload, run_id
from eva_wire.values.states import RunState
from tests.fakes.snapshots import task

TASK = task("w", any=(0, 1, 1))
KIND: Kind = (TASK.workload, TASK.demand[0][1])


def array(name: str = "job", tasks: int = 40) -> Job:
    spec = JobSpec(name, "me", (TASK,) * tasks, kind=JobKind.ARRAY)
    return Job(JobId(f"{name}-1"), spec, Millis(0), (("running", 0),))


def done(job: Job, index: int, seconds: int = 60) -> TaskRun:
    history = ((RunState.SUCCEEDED.value, 0),)
    run = TaskRun(run_id(job.id, index), job.id, index, history)
    return replace(run, took_ms=seconds * 1_000)


class Tasks:
    """The finished tasks of one array."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.index = FinishedTasks()
        self.runs: list[TaskRun] = []

    def finish(self, *indexes: int, seconds: int = 60) -> None:
        for number in indexes:
            self.runs.append(done(self.job, number, seconds))
            self.index.follow(None, self.runs[-1], self.job)

    def choose(self, *indexes: int) -> bool:
        return self.index.choose(self.job, indexes, self.runs)

    @property
    def telling(self) -> tuple[int, int]:
        """How many tell, and their mean in seconds."""
        found = self.index.telling(self.job).get(KIND, Finished())
        return found.tasks, found.total_ms // 1_000 // max(1, found.tasks)

    @property
    def known(self) -> int:
        return sum(it.tasks for it in self.index.of(self.job).values())


@pytest.fixture
def tasks() -> Tasks:
    return Tasks(array())


def test_without_pilots_every_finished_task_tells(tasks: Tasks) -> None:
    tasks.finish(7, 3)
    assert tasks.telling == (2, 60)
    assert tasks.index.pilots_left(tasks.job.id) is None


def test_only_pilots_tell_until_ten_have_finished(tasks: Tasks) -> None:
    assert tasks.choose(5, 6)
    tasks.finish(0, 1, 2, seconds=10)  # they began with the pilots, and are the shortest
    assert tasks.telling == (0, 0)
    tasks.finish(5, seconds=100)
    assert tasks.telling == (1, 100)
    assert tasks.index.pilots_left(tasks.job.id) == 1
    tasks.finish(*range(10, 15), seconds=10)
    assert (tasks.known, tasks.telling) == (9, (1, 100))
    tasks.finish(20, seconds=10)
    assert (tasks.known, tasks.telling) == (10, (10, 19))
    assert tasks.index.pilots_left(tasks.job.id) == 1


def test_who_is_chosen_late_tells_what_it_took(tasks: Tasks) -> None:
    tasks.finish(4, seconds=30)
    tasks.finish(8, seconds=50)
    assert tasks.choose(8, 9)
    assert tasks.telling == (1, 50)
    assert tasks.index.pilots_left(tasks.job.id) == 1
    assert not tasks.choose(9, 8), "they are pilots already"
    assert tasks.choose(4, 9), "others are now"
    assert tasks.telling == (1, 30)


def test_what_is_told_twice_counts_once(tasks: Tasks) -> None:
    tasks.choose(5)
    tasks.finish(5)
    run = tasks.runs[-1]
    tasks.index.follow(run, run, tasks.job)
    assert (tasks.known, tasks.telling) == (1, (1, 60))
    assert tasks.index.pilots_left(tasks.job.id) == 0


def test_nothing_is_known_of_a_job_that_has_ended(tasks: Tasks) -> None:
    tasks.choose(5)
    tasks.finish(5, 6)
    tasks.index.forget(tasks.job.id)
    assert (tasks.known, tasks.telling) == (0, (0, 0))
    assert tasks.index.pilots_left(tasks.job.id) is None
    tasks.index.forget(tasks.job.id)


def test_pilots_of_another_job_say_nothing(tasks: Tasks) -> None:
    other = array("other")
    tasks.choose(5)
    tasks.index.follow(None, done(other, 5), other)
    assert tasks.telling == (0, 0)
    assert tasks.index.telling(other)[KIND].tasks == 1


def test_pilots_tell_of_their_own_kind(tasks: Tasks) -> None:
    large = replace(TASK, workload=Workload("large"))
    spec = replace(tasks.job.spec, tasks=(TASK, large) * 20)
    mixed = Tasks(replace(tasks.job, spec=spec))
    mixed.choose(0, 1)
    mixed.finish(0, seconds=10)
    mixed.finish(1, seconds=90)
    found = mixed.index.telling(mixed.job)
    assert {kind[0]: it.total_ms for kind, it in found.items()} == {"w": 10_000, "large": 90_000}
