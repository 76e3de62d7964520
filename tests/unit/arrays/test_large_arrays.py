"""Arrays of a million tasks: what is accepted and refused, and what no command may walk through."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from dataclasses import replace

import pytest

from eva_master.adapters.resolving.parse import parse_job
from eva_master.adapters.store import task_specs
from eva_master.control import converge
from eva_master.control.machine import Machine
from eva_master.control.settings import Limits, Settings
from eva_master.control.state import runs as runs_module
from eva_master.control.state.store import State
from eva_master.model.actions import Reply
from eva_master.model.events import CancelRequested, JobSubmitted, Phase
from eva_master.model.job import JobSpec, different
from eva_master.model.records import Job, TaskRun, untouched
from eva_wire.jobfile.reading import check_job
from eva_wire.values.bounds import MOST_TASKS
from eva_wire.values.errors import InvalidJob, LimitExceeded
from eva_wire.values.ids import JobId, Millis, run_id
from eva_wire.values.states import JobState, RunState
from tests.fakes.hand_driven import JOB, Cluster
from tests.fakes.jobs import CATALOG, job, task

A_MILLION = 1_000_000
ID = JobId("a-1")
LARGE = replace(job("a", array=True), tasks=(task(1),) * A_MILLION)
TEXT = "name: a\nrun: 'true'\nkind: array\nresources: {cpus: 1, memory: 1GiB}\ntasks: "


@pytest.fixture
def derived(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The indices of the tasks without a record that anybody looked at."""
    seen: list[int] = []

    def looked_at(job: Job, index: int) -> TaskRun:
        seen.append(index)
        return untouched(job, index)

    monkeypatch.setattr(runs_module, "untouched", looked_at)
    return seen


def parsed(text: str, allowed: int = MOST_TASKS) -> JobSpec:
    return parse_job(
        text,
        file_name="a.yaml",
        owner="me",
        catalog=CATALOG,
        workdir=None,
        tasks_allowed=allowed,
    )


# -- what is accepted ------------------------------------------------------------------------------


def test_a_million_tasks_are_one_task_in_memory_and_in_the_journal() -> None:
    spec = parsed(TEXT + "1000000")
    assert len(spec.tasks) == A_MILLION
    assert len(set(map(id, spec.tasks))) == 1
    stored = task_specs.encode(spec.tasks)
    assert len(stored) < 1_000
    assert task_specs.decode(stored) == spec.tasks


@pytest.mark.parametrize(
    ("tasks", "kind", "line", "message"),
    [
        ("1000001", "array", 5, "1000000"),
        ("0", "array", 5, "1 or more"),
        ("10001", "gang", 5, "a gang has at most 10,000 tasks"),
        ("true", "array", 5, ""),
        ("1e6", "array", 5, ""),
    ],
)
def test_more_than_can_be_is_refused_where_it_is_written(
    tasks: str, kind: str, line: int, message: str
) -> None:
    text = TEXT.replace("array", kind) + tasks
    with pytest.raises(InvalidJob) as refused:
        check_job(text, file_name="a.yaml")
    (problem,) = refused.value.problems
    assert (problem.key, problem.line) == ("tasks", line)
    assert message in problem.message


def test_more_than_the_operator_allows_is_refused_where_it_is_written() -> None:
    with pytest.raises(LimitExceeded) as refused:
        parsed(TEXT + "5000", allowed=4_999)
    (problem,) = refused.value.problems
    assert (problem.key, problem.line) == ("tasks", 5)
    assert "5,000 tasks, and a job may have 4,999 (limits.tasks_per_job)" in refused.value.message
    assert "raise the limit" in problem.hint
    assert parsed(TEXT + "5000", allowed=5_000)


def test_other_mistakes_are_told_beside_it() -> None:
    text = TEXT + "5000\nafter: [a]\n"
    with pytest.raises(InvalidJob) as refused:
        parsed(text, allowed=10)
    assert {problem.key for problem in refused.value.problems} == {"tasks", "after[0]"}


def test_different_tasks_are_told_apart() -> None:
    one, other = task(1), task(2)
    assert different((one,) * 5) == (one,)
    assert different(()) == ()
    assert list(different((one, other, one))) == [one, other]


# -- what it costs ---------------------------------------------------------------------------------


def machine(limits: Limits | None = None) -> Machine:
    settings = Settings() if limits is None else Settings(limits=limits)
    made = Machine(State(CATALOG), settings)
    made.recover(Millis(0))
    return made


def test_a_million_tasks_come_and_go_without_a_look_at_each(derived: Sequence[int]) -> None:
    one = machine()
    tracemalloc.start()
    one.handle([JobSubmitted("s", LARGE)], Millis(1_000))
    written = one.take_changes()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert not written.runs
    assert len(derived) <= 2_000
    assert most < 20_000_000
    one.handle([CancelRequested("c", ID, "me")], Millis(2_000))
    assert one.state.jobs[ID].state is JobState.CANCELLED
    assert one.state.tasks[ID].counts[RunState.CANCELLED] == A_MILLION
    assert not one.take_changes().runs
    assert len(derived) <= 2_000
    one.handle([], Millis(3_000))
    assert len(derived) <= 2_000


def test_the_limit_holds_for_a_million_too() -> None:
    one = machine(Limits(tasks_per_job=A_MILLION - 1))
    (reply,) = [
        it for it in one.handle([JobSubmitted("s", LARGE)], Millis(1_000)) if isinstance(it, Reply)
    ]
    assert isinstance(reply.error, LimitExceeded)
    assert not one.state.jobs
    assert MOST_TASKS == A_MILLION


def test_the_end_of_an_array_looks_at_none_that_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    cluster.start(JOB + "kind: array\ntasks: 6\n", name="a")
    one = cluster.state
    for index in range(4):
        cluster.say(run_id(ID, index), Phase.EXITED, at=1_000, exit_code=0)
    assert len(one.tasks[ID].touched) == 6
    looked: list[str] = []
    ended = converge._end_run
    monkeypatch.setattr(
        converge,
        "_end_run",
        lambda context, job, run: (looked.append(run.id), ended(context, job, run)),
    )
    cluster.handle(CancelRequested("c", ID, "me"), at=2_000)
    assert set(looked) == {"a-1/4", "a-1/5"}
    for index in (4, 5):
        cluster.say(run_id(ID, index), Phase.EXITED, at=3_000, exit_code=143, stopped=True)
    assert one.jobs[ID].state is JobState.CANCELLED
    states = [run.state for run in one.members(ID)]
    assert states == [RunState.SUCCEEDED] * 4 + [RunState.CANCELLED] * 2
