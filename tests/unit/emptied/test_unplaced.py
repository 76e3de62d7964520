"""Jobs that wait for a place are found by what they need."""

from __future__ import annotations

from dataclasses import replace

from eva_master.control.state.store import State
from eva_master.model.records import Job, TaskRun
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.states import JobState, RunState
from tests.fakes.jobs import CATALOG, job


def state_of(count: int, cpus: int = 2) -> State:
    state = State(CATALOG)
    for number in range(count):
        add(state, f"j{number}-{number}", cpus)
    return state


def add(state: State, name: str, cpus: int) -> Job:
    history = ((JobState.PENDING.value, 0),)
    added = Job(JobId(name), job(name, cpus), Millis(0), history, "")
    state.put_job(added)
    for run in state.members(added.id):
        state.put_run(run)
    return added


def needs(state: State) -> dict[int, list[str]]:
    """The jobs that wait by the milli-CPUs that they need."""
    return {need.demands[0][0][1].milli_cpus: list(jobs) for need, jobs in state.unplaced.by_need()}


def test_jobs_that_need_the_same_are_one_need_however_many_wait() -> None:
    state = state_of(1_000)
    assert len(needs(state)) == 1
    assert len(state.unplaced) == 1_000
    add(state, "other-1000", 4)
    assert [len(jobs) for jobs in needs(state).values()] == [1_000, 1]


def test_a_job_whose_task_has_a_place_or_that_has_ended_waits_no_more() -> None:
    state = state_of(2)
    (run,) = state.members(JobId("j0-0"))
    placed = replace(run, history=((RunState.STARTING.value, 1),), target=None, instance=None)
    state.put_run(placed)
    assert needs(state) == {2_000: ["j1-1"]}
    ended = state.jobs[JobId("j1-1")]
    (other,) = state.members(ended.id)
    state.put_run(over(other))
    state.put_job(replace(ended, history=((JobState.CANCELLED.value, 2),)))
    assert needs(state) == {}
    assert not state.unplaced


def over(run: TaskRun) -> TaskRun:
    return replace(run, history=((RunState.CANCELLED.value, 2),))


def test_a_job_that_moves_to_another_partition_needs_room_there() -> None:
    state = state_of(1)
    record = state.jobs[JobId("j0-0")]
    state.put_job(replace(record, moved_to="ml"))
    ((need, jobs),) = state.unplaced.by_need()
    assert (need.partition, list(jobs)) == ("ml", ["j0-0"])
