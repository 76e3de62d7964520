"""The state as it comes back from a journal."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eva_master.control.alarms import Alarm, Alarms
from eva_master.control.settings import NEVER_MS
from eva_master.control.state.parts.results import Removals
from eva_master.control.state.store import State
from eva_master.control.state.view_cache import SortedValues, ViewCache
from eva_master.learning.colocation import DEFAULT_PPM, key
from eva_master.learning.knowledge import Knowledge
from eva_master.learning.memory_sizes import MemorySizes
from eva_master.learning.voices.lessons import Lessons
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.changes import Changes
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.planning.snapshot import InstanceView, RunView, ThroughputTable
from eva_master.model.progress import Progress
from eva_master.model.records import Instance, Job, TaskRun
from eva_master.model.resources import Resources
from eva_wire.values.errors import StorageError
from eva_wire.values.ids import Family, InstanceId, JobId, Millis, Price, RunId, Workload
from eva_wire.values.states import InstanceState, JobState
from tests.fakes.models import model_of

OFFERING = Offering(InstanceType("c7i.large", Family("c7i"), Resources(0, 2_000, 4_096)), Price(1))


def job(name: str, number: int, state: JobState = JobState.PENDING) -> Job:
    demand = ((Family("c7i"), Resources(0, 1_000, 1_024)),)
    spec = JobSpec(name, "me", (TaskSpec(Workload(name), Program("true"), demand),))
    at = Millis(1_000)  # all in one turn of the loop
    return Job(JobId(f"{name}-{number}"), spec, at, ((state.value, int(at)),), command=str(number))


def instance(number: int, requested: int) -> Instance:
    history = ((InstanceState.LAUNCHING.value, requested),)
    return Instance(InstanceId(f"i{number:05d}"), OFFERING, history, Millis(requested))


def test_restored_jobs_are_in_order_of_submission() -> None:
    """A journal has them by id; users see the newest first, and mean it when they say a name."""
    ended = JobState.SUCCEEDED
    jobs = (job("a", 3), job("b", 1), job("x", 10, ended), job("x", 2), job("x", 9, ended))
    state = State.restored((), Changes(jobs=jobs))
    assert list(state.jobs) == ["b-1", "x-2", "a-3", "x-9", "x-10"]
    assert list(state.active) == ["b-1", "x-2", "a-3"]
    gone = State.restored((), Changes(jobs=tuple(it for it in jobs if it.id != "x-2")))
    newest = model_of(gone).find("me", "x")
    assert newest is not None
    assert newest.id == "x-10"


def test_restored_instances_are_in_order_of_launch() -> None:
    instances = (instance(100_000, 7), instance(2, 5), instance(99_999, 7))
    state = State.restored((), Changes(instances=instances))
    assert list(state.instances) == ["i00002", "i99999", "i100000"]
    assert list(state.live) == list(state.instances)


def test_what_was_learned_in_another_form_keeps_the_master_from_starting() -> None:
    written = Changes(values={"learned": {"version": 99}})
    with pytest.raises(StorageError, match="of version 99") as refused:
        State.restored((OFFERING,), written)
    assert "learned anew" in refused.value.hint


def test_what_a_task_says_of_itself_is_neither_written_nor_seen() -> None:
    state = State((OFFERING,))
    state.put_job(job("a", 1))
    run = TaskRun(RunId("a-1/0"), JobId("a-1"), 0, (("running", 1),))
    state.put_run(run)
    state.take_changes()
    state.view_cache.outdated_jobs()
    state.put_progress(run, Progress(5))
    assert state.runs[run.id].progress == Progress(5)
    assert not state.take_changes()
    assert not state.view_cache.outdated_jobs()


def test_what_a_task_costs_alone_follows_the_prices() -> None:
    state = State((OFFERING,))
    state.put_job(job("a", 1))
    run = TaskRun(RunId("a-1/0"), JobId("a-1"), 0, (("waiting", 1),))
    state.put_run(run)
    assert state.reservation(run).price == 1
    state.set_prices({OFFERING.id: Price(7)})
    assert state.reservation(run).price == 7


def test_what_is_expected_follows_what_was_learned() -> None:
    state, entry = State((OFFERING,)), key(Workload("a"), [Workload("b")])
    assert state.figures.expected_ppm("ana", entry) == DEFAULT_PPM
    state.set_learned(Knowledge({"ana": Lessons(ThroughputTable(((entry, 600_000),)))}))
    assert state.figures.expected_ppm("ben", entry) == DEFAULT_PPM
    assert state.figures.expected_ppm("ana", entry) == 600_000


def test_changed_documents_alone_are_written_and_come_back() -> None:
    state = State((OFFERING,))
    state.remember(state.market.sold(OFFERING, Millis(60_000)))
    state.remember(Removals({JobId("a-1"): "me"}))
    state.remember(MemorySizes({"c7i.large": 4_096}, {"c7i.large": 4_000}))
    written = state.take_changes()
    names = {"spot_pools", "removals", "memory_sizes", "disk_sizes"}
    assert written.documents().keys() == names, "nothing was learned of interruptions"
    after = State.restored((OFFERING,), Changes(values=written.documents()))
    assert after.market == state.market
    assert after.removals.pending == {"a-1": "me"}
    assert after.sizes.measured == {"c7i.large": 4_000}
    state.remember(state.market)
    assert not state.take_changes().values


def test_what_would_never_ring_is_not_kept() -> None:
    alarms = Alarms()
    alarms.at(Millis(NEVER_MS), Alarm.job(JobId("a")))
    assert alarms.next() is None
    alarms.at(Millis(NEVER_MS - 1), Alarm.job(JobId("a")))
    assert alarms.next() == NEVER_MS - 1


def test_nothing_is_left_of_who_was_on_an_instance() -> None:
    view_cache, spec = ViewCache(), job("a", 1).spec.tasks[0]
    box, name = InstanceId("box"), RunId("a-1/0")
    there = RunView(name, JobId("a-1"), spec, instance=box, pinned=False, running=True)
    away = RunView(name, JobId("a-1"), spec, instance=None, pinned=False, running=False)
    view_cache.put_job(JobId("a-1"), None, (there,))
    assert view_cache.residents(box) == (name,)
    view_cache.put_job(JobId("a-1"), None, (away,))
    assert view_cache.residents(box) == ()
    assert not view_cache._residents


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from([None, "small", "large"]))))
def test_instances_are_counted_by_offering(steps: list[tuple[str, str | None]]) -> None:
    types = {name: replace(OFFERING.type, name=name) for name in ("small", "large")}
    view_cache = ViewCache()
    for name, kind in steps:
        sold = None if kind is None else replace(OFFERING, type=types[kind])
        view = None if sold is None else InstanceView(InstanceId(name), sold, (), ready=True)
        if view is not None or view_cache.instances.get(InstanceId(name)) is not None:
            view_cache.put_instance(InstanceId(name), view)
        there = view_cache.instances.ordered()
        assert +view_cache.counts == Counter(view.offering.id for view in there)


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from(["put", "drop", "look"]))))
def test_a_shelf_is_in_order_whatever_was_put_and_dropped(steps: list[tuple[str, str]]) -> None:
    sorted_values: SortedValues[str, int] = SortedValues()
    there: dict[str, int] = {}
    for number, (key_, what) in enumerate(steps):
        if what == "put":
            sorted_values.put(key_, number)
            there[key_] = number
        elif what == "look":
            assert sorted_values.ordered() == tuple(there[name] for name in sorted(there))
        elif key_ in there:
            sorted_values.drop(key_)
            del there[key_]
    assert sorted_values.ordered() == tuple(there[name] for name in sorted(there))
