"""What readers see of large arrays: tallies, the tasks that matter, pages, and at what cost."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from eva_master.adapters.rpc.server import views
from eva_master.control.readside import shown_tasks
from eva_master.control.readside.model import ClusterModel
from eva_master.control.readside.publisher import Publisher
from eva_master.control.settings import Settings
from eva_master.model.events import CancelRequested, Phase
from eva_master.packing.valuation.job_valuation import JobReservations, JobValuation
from eva_master.ports.reading import SMALL_JOB, JobRecord, TaskPage
from eva_wire.values.ids import JobId, Millis, Workload
from eva_wire.values.states import RunState
from tests.unit.arrays.test_arrays import JOB, OFFERING, TASK, Array, calls

NOW = Millis(1_000)
SIZES = (200, 20_000)


def read(array: Array) -> ClusterModel:
    return Publisher(array.state, Settings()).publish(NOW)


def record(array: Array, page: TaskPage | None = None) -> JobRecord:
    model = read(array)
    return model.record(JOB, NOW) if page is None else model.record(JOB, NOW, page)


def indices(found: JobRecord) -> list[int]:
    return [run.index for run in found.runs]


def test_of_a_large_array_those_are_shown_that_failed_ended_last_or_have_a_place() -> None:
    array = Array(*[TASK] * 5_000, room=4, retries=0, concurrency=8)
    array.begin(0, 1, 2, 3)
    array.now += 1_000
    array.finish(1)
    array.now += 1_000
    found = record(array)
    assert indices(found)[0] == 1, "the one that ended last"
    assert {0, 2, 3} <= set(indices(found))
    assert len(found.runs) <= SMALL_JOB
    assert found.states == +Counter(array.state.tasks[JOB].counts)
    assert sum(found.states.values()) == 5_000
    array.finish(2, code=1)
    found = record(array)
    assert indices(found)[0] == 2, "the one that failed"
    assert found.runs[0].reason


def test_a_failed_task_that_waits_for_its_next_attempt_is_shown() -> None:
    array = Array(*[TASK] * 5_000, room=2, retries=3)
    array.begin(0, 1)
    array.finish(1, code=1)
    array.room = 1
    array.wait(1)
    run = array.run(1)
    assert run.state is RunState.WAITING
    assert run in record(array).runs


def test_any_page_may_be_asked_for() -> None:
    array = Array(*[TASK] * 5_000, room=3, retries=0)
    assert indices(record(array, TaskPage(2, 4))) == [2, 3, 4, 5]
    assert indices(record(array, TaskPage(4_998, 1_000))) == [4_998, 4_999]
    assert record(array, TaskPage(4_999, 1)).runs == (array.run(4_999),)
    assert record(array, TaskPage(5_000, 1)).runs == ()


def test_the_failed_ones_may_be_asked_for_page_by_page() -> None:
    array = Array(*[TASK] * 300, room=300, retries=0)
    array.begin(*range(300))
    array.tell(CancelRequested("stop", JOB, owner="me"))
    array.finish(*range(300), code=143, stopped=True)
    assert record(array, TaskPage(0, 10, failed=True)).runs == ()
    for index in range(0, 300, 2):
        run = array.run(index)
        history = (*run.history[:-1], ("failed", run.history[-1][1]))
        array.state.put_run(replace(run, history=history))
    assert indices(record(array, TaskPage(0, 3, failed=True))) == [0, 2, 4]
    assert indices(record(array, TaskPage(5, 3, failed=True))) == [6, 8, 10]
    assert len(record(array, TaskPage(0, 1_000, failed=True)).runs) == 150


def test_all_of_a_small_job_are_shown_by_index() -> None:
    array = Array(*[TASK] * SMALL_JOB, room=5)
    assert indices(record(array)) == list(range(SMALL_JOB))


def shown(array: Array) -> Any:
    model = read(array)
    return views.job(model, model.record(JOB, NOW), NOW)


def test_why_tasks_wait_that_are_not_shown_is_told_once() -> None:
    array = Array(*[TASK] * 2_500, room=3)
    message = shown(array)
    assert list(message.waiting_for) == ["no room"]
    assert message.task_count == 2_500
    assert dict(message.tasks_by_state) == {"waiting": 2_497, "starting": 3}
    assert array.run(2_499).waiting_for == "no room"
    array.room = 2_500
    array.wait(600_000)
    assert not shown(array).waiting_for, "the last plan had room for all"


def test_a_kind_of_task_waits_for_what_its_own_kind_waits_for() -> None:
    other = replace(TASK, workload=Workload("other"))
    array = Array(*[TASK, other] * 300, room=600)
    array.state.explain(array.run(598), "no room for w")
    kinds = {array.run(index).waiting_for for index in range(300, 600)}
    assert kinds <= {"", "no room for w"}
    assert array.run(599).waiting_for == ""


def test_that_no_more_may_have_a_place_is_told_as_the_reason() -> None:
    array = Array(*[TASK] * 5_000, concurrency=4)
    (why,) = shown(array).waiting_for
    assert "4 tasks have a place" in why
    assert "concurrency" in why


def test_how_long_a_large_array_takes_is_told_by_one_that_waits() -> None:
    array = Array(*[TASK] * 5_000, room=3, duration_ms=60_000)
    array.begin(0, 1, 2)
    array.now += 30_000
    model = read(array)
    now = Millis(array.now)
    message = views.job(model, model.record(JOB, now), now)
    assert (message.remaining_ms, message.HasField("eta_ms")) == (60_000, False)
    assert {task.remaining_ms for task in message.tasks if task.state == "running"} == {30_000}


def test_of_a_large_array_those_tell_that_began_last_and_those_that_began_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first ones may have run for longer than was expected."""
    monkeypatch.setattr(shown_tasks, "_TELLING", 10)
    monkeypatch.setattr(shown_tasks, "_BEGAN_FIRST", 5)
    array = Array(*[TASK] * 5_000, room=300)
    array.begin(*range(300))
    telling = [run.index for run in record(array).telling if run.state is RunState.RUNNING]
    running = [index for index in range(5_000) if array.run(index).state is RunState.RUNNING]
    assert len(running) > 30
    assert sorted(telling) == [*running[:5], *running[-10:]]


@pytest.mark.parametrize("page", [TaskPage(), TaskPage(150, 20), TaskPage(0, 20, failed=True)])
def test_reading_costs_the_same_in_an_array_of_any_size(page: TaskPage) -> None:
    costs = []
    for size in SIZES:
        array = Array(*[TASK] * size, room=20)
        array.begin(*(run.index for run in array.state.in_hand(JOB)))
        model = read(array)
        costs.append(calls(lambda m=model: views.job(m, m.record(JOB, NOW, page), NOW)))
    assert costs[1] <= 1.2 * costs[0], costs


def test_publishing_an_event_costs_the_same_in_an_array_of_any_size() -> None:
    costs = []
    memory = []
    for size in SIZES:
        array = Array(*[TASK] * size, room=20)
        placed = [run.index for run in array.state.in_hand(JOB)]
        array.begin(*placed[:10])
        publisher = Publisher(array.state, Settings())
        publisher.publish(NOW)
        array.report(placed[10], Phase.RUNNING)
        costs.append(calls(lambda it=publisher: it.publish(NOW)))
        array.report(placed[11], Phase.RUNNING)
        tracemalloc.start()
        model = publisher.publish(NOW)
        memory.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert model.tasks.counts[JOB].states[RunState.RUNNING] == 12
    assert costs[1] <= 1.2 * costs[0], costs
    assert memory[1] <= 1.5 * memory[0], memory


def test_what_one_task_is_worth_costs_the_same_in_an_array_of_any_size() -> None:
    costs = []
    for size in SIZES:
        array = Array(*[TASK] * size, room=1)
        spec = array.job.spec
        costs.append(calls(lambda it=spec: JobReservations(JobValuation((OFFERING,)), it)[7]))
    assert costs[0] == costs[1]


def test_each_task_of_an_array_has_the_worth_that_all_together_have() -> None:
    valuation = JobValuation((OFFERING,))
    other = replace(TASK, demand=((TASK.demand[0][0], TASK.demand[0][1] + TASK.demand[0][1]),))
    array = Array(TASK, other, TASK, other)
    lazily = JobReservations(valuation, array.job.spec)
    found = [lazily[index] for index in (3, 0, 1, 2)]
    assert found == [valuation.of(array.job.spec)[index] for index in (3, 0, 1, 2)]


def test_a_model_does_not_change_when_the_array_goes_on() -> None:
    array = Array(*[TASK] * 500, room=5, retries=0, concurrency=5)
    array.begin(*range(5))
    publisher = Publisher(array.state, Settings())
    model = publisher.publish(NOW)
    before = model.record(JobId(JOB), NOW)
    array.finish(0, 1)
    array.finish(2, code=1)
    publisher.publish(NOW)
    assert model.record(JobId(JOB), NOW) == before
