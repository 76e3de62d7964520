"""What readers see of tasks with several runs: tallies of tasks, and all runs of each of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from eva_master.adapters.store import SqlArchive, SqlJournal
from eva_master.control.readside.model import ClusterModel
from eva_master.control.readside.publisher import Publisher
from eva_master.control.settings import Settings
from eva_master.control.state.derived.company import Company
from eva_master.control.state.store import State
from eva_master.model.catalog import Catalog
from eva_master.model.changes import Changes
from eva_master.model.job import Stragglers
from eva_master.model.records import Job, TaskRun
from eva_master.ports.reading import TaskPage
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId, run_id
from eva_wire.values.states import RunState
from tests.fakes.archive import LoadedArchive
from tests.fakes.jobs import MEDIUM, job, task
from tests.simulation.replicas.test_duplicates import LATE, World

ARRAY = JobId("array-1")
OPTIONS = {"array": True, "stragglers": Stragglers.DUPLICATE}
SMALL, LARGE = 6, 300
OVER = {"w": RunState.WAITING, "s": RunState.SUCCEEDED, "f": RunState.FAILED}
OVER |= {"c": RunState.CANCELLED, "r": RunState.RUNNING}


def run(index: int, number: int, state: str, **more: object) -> TaskRun:
    """A run of a task, in a state by its first letter."""
    name = run_id(ARRAY, index, number)
    return TaskRun(name, ARRAY, index, ((OVER[state].value, 5),), **more)  # type: ignore[arg-type]


def doubled(size: int, state: str) -> Changes:
    """An array of which five tasks have two runs each, or had; nothing has happened to others."""
    spec = job("array", *[1] * size, **OPTIONS)  # type: ignore[arg-type]
    pairs = ["cs", "fs", "sc", "ff", "fc"]
    runs = [
        run(index, number, state, replicas=0 if number else 1)
        for index, pair in enumerate(pairs)
        for number, state in enumerate(pair)
    ]
    return Changes(
        jobs=(Job(ARRAY, spec, Millis(1), ((state, 9),), command="c"),), runs=tuple(runs)
    )


def published(state: State) -> ClusterModel:
    return Publisher(state, Settings()).publish(Millis(10))


def ids(runs: tuple[TaskRun, ...]) -> list[str]:
    return [run.id.partition("/")[2] for run in runs]


def test_tallies_count_tasks_and_what_has_won_has_succeeded() -> None:
    state = State.restored(Catalog((MEDIUM,)), doubled(SMALL, "running"))
    record = published(state).record(ARRAY, Millis(10))
    assert record.states == {RunState.SUCCEEDED: 3, RunState.FAILED: 2, RunState.WAITING: 1}
    assert state.tasks[ARRAY].counts[RunState.CANCELLED] == 3, "the runs of it are counted as such"
    assert ids(record.runs) == [f"{n}{more}" for n in range(5) for more in ("", "+1")] + ["5"]


def test_a_task_of_which_a_run_goes_on_has_not_failed() -> None:
    state = State.restored(Catalog((MEDIUM,)), doubled(LARGE, "running"))
    state.put_run(run(9, 1, "r"))
    state.put_run(run(9, 0, "f", replicas=1))
    model = published(state)
    record = model.record(ARRAY, Millis(10))
    assert record.states[RunState.RUNNING] == 1
    assert record.states[RunState.FAILED] == 2
    assert sum(record.states.values()) == LARGE
    failed = model.record(ARRAY, Millis(10), TaskPage(0, 50, failed=True))
    assert ids(failed.runs) == ["3", "3+1", "4", "4+1"]
    assert ids(model.record(ARRAY, Millis(10), TaskPage(0, 1, failed=True)).runs) == ["3", "3+1"]
    assert {"9", "9+1", "3", "3+1"} <= set(ids(record.runs)), "a run of it has a place"
    assert ids(model.record(ARRAY, Millis(10), TaskPage(8, 2)).runs) == ["8", "9", "9+1"]
    assert [it.id for it in record.telling if it.index == 9] == [RunId("array-1/9+1")]
    state.put_run(replace(state.runs[RunId("array-1/9+1")].to(RunState.SUCCEEDED, Millis(11))))
    assert published(state).record(ARRAY, Millis(11)).states[RunState.SUCCEEDED] == 4


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqlJournal]:
    with SqlJournal.open(f"sqlite:///{tmp_path}/journal.db") as opened:
        yield opened


@pytest.mark.parametrize("size", [SMALL, LARGE])
@pytest.mark.parametrize("state", ["failed", "cancelled"])
def test_an_archive_says_the_same_of_a_job_that_has_ended(
    journal: SqlJournal, size: int, state: str
) -> None:
    journal.commit(doubled(size, state))
    archive, plain = SqlArchive(journal.engine), LoadedArchive(journal.load)
    record = archive.job(ARRAY)
    assert record == plain.job(ARRAY)
    assert record is not None
    assert record.states[RunState.SUCCEEDED] == 3
    assert sum(record.states.values()) == size
    pages = TaskPage(0, 1), TaskPage(1, 3), TaskPage(0, 3, failed=True), TaskPage(4, 9, failed=True)
    for page in pages:
        assert archive.job(ARRAY, page) == plain.job(ARRAY, page)
    first = archive.job(ARRAY, TaskPage(0, 1))
    assert first is not None
    assert ids(first.runs) == ["0", "0+1"]


def test_an_array_with_a_task_whose_extra_run_won_is_told_as_all_succeeded() -> None:
    world = World()
    world.until_doubled()
    before = published(world.state).record(LATE, world.timeline.now())
    assert sum(before.states.values()) == 2
    world.until(lambda: world.ended)
    assert world.own.state is RunState.CANCELLED
    record = published(world.state).record(LATE, world.timeline.now())
    assert record.states == {RunState.SUCCEEDED: 2}


def test_an_extra_run_beside_an_own_one_of_its_job_is_booked_by_itself() -> None:
    world = World()
    world.until_doubled()
    state, place = world.state, world.extra.instance
    assert place is not None
    other = replace(state.runs[RunId("late-2/1")], instance=place, target=place)
    state.put_run(replace(other, history=((RunState.RUNNING.value, 5),)))
    for records in (state, published(state)):
        groups = [(first.id, count) for first, count in records.company.groups(place)]
        assert ("late-2/0+1", 1) in groups
        assert ("late-2/1", 1) in groups
        assert records.company.has_extras(place)
    state.put_run(replace(world.extra, instance=None, target=None))
    assert not state.company.has_extras(place)


def test_an_extra_run_is_in_a_group_of_its_own() -> None:
    place, kind = InstanceId("i-1"), task(1)
    there = [run(index, number, "r", instance=place) for index, number in [(0, 0), (1, 0), (2, 1)]]
    company = Company({it.id: it for it in there}, {}, {}, lambda _: kind)
    for each in there:
        company.follow(each, kind)
    assert [(first.id, count) for first, count in company.groups(place)] == [
        ("array-1/0", 2),
        ("array-1/2+1", 1),
    ]
