"""The state as it comes back from a journal."""

from __future__ import annotations

import pytest

from eva_master.control.state import State
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.changes import Changes
from eva_master.model.errors import StorageError
from eva_master.model.ids import Family, InstanceId, JobId, Millis, Price, Workload
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.records import Instance, Job
from eva_master.model.resources import Resources
from eva_master.model.states import InstanceState, JobState

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
    newest = gone.find("me", "x")
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
