"""Arrays of which tasks fail for good: who goes on, and what the array's end says."""

from __future__ import annotations

import pytest

from eva_master.adapters.resolving.parse import parse_job
from eva_master.adapters.store import codec
from eva_master.control.features.deadlines import slack
from eva_master.control.features.replicas import settling
from eva_master.control.state.store import State
from eva_master.model.events import JobSubmitted
from eva_master.model.job import JobSpec, JobStage, OnFailure
from eva_master.model.records import Job
from eva_wire.values.errors import InvalidJob
from eva_wire.values.ids import JobId, Millis, run_id
from eva_wire.values.states import RunState
from tests.fakes.hand_driven import CATALOG, SLOW, Cluster, Phase

ARRAY = "kind: array\nretries: 0\nrun: train\nresources: {cpus: 1, memory: 1GiB}\n"
NAME = JobId("job-1")


def array(tasks: int, more: str = "") -> Cluster:
    """All tasks of an array run."""
    cluster = Cluster()
    cluster.start(f"{ARRAY}tasks: {tasks}\n{more}", on=SLOW)
    return cluster


def end(cluster: Cluster, index: int, code: int, *, at: int = 60_000) -> None:
    cluster.say(run_id(NAME, index), Phase.EXITED, at=at, exit_code=code)


def job(cluster: Cluster) -> Job:
    return cluster.state.jobs[NAME]


def states(cluster: Cluster) -> list[str]:
    return [run.state.value for run in cluster.state.members(NAME)]


@pytest.mark.parametrize("stated", ["", "on_failure: continue\n"])
def test_the_other_tasks_run_on_and_the_first_failure_in_time_is_the_arrays(stated: str) -> None:
    cluster = array(3, stated)
    end(cluster, 2, 7)
    assert (job(cluster).state, job(cluster).outcome) == ("running", None)
    assert states(cluster) == ["running", "running", "failed"]
    end(cluster, 0, 4, at=61_000)
    end(cluster, 1, 0, at=62_000)
    assert states(cluster) == ["failed", "succeeded", "failed"]
    ended = job(cluster)
    assert (ended.state, ended.exit_code, ended.finished_ms) == ("failed", 7, 62_000)
    assert ended.reason == "2 of 3 tasks failed; the first: task job-1/2 exited with code 7"


def test_the_array_stops_with_the_first_failure_if_its_file_says_so() -> None:
    cluster = array(3, "on_failure: stop\n")
    end(cluster, 1, 7)
    assert (job(cluster).state, job(cluster).exit_code) == ("ending", 7)
    assert states(cluster) == ["stopping", "failed", "stopping"]


def test_an_array_of_which_the_first_ten_tasks_fail_stops() -> None:
    cluster = array(12)
    for index in range(9):
        end(cluster, index, 3 + index, at=60_000 + index)
    assert job(cluster).state == "running"
    end(cluster, 11, 99, at=61_000)
    assert (job(cluster).state, job(cluster).exit_code) == ("ending", 3)
    assert job(cluster).reason == (
        "the first 10 tasks that ended all failed, so the array was stopped (`on_failure: continue`"
        " has it go on); the first: task job-1/0 exited with code 3"
    )
    assert states(cluster)[9:11] == ["stopping", "stopping"]


@pytest.mark.parametrize("succeeds", [True, False])
def test_it_does_not_stop_if_one_succeeded_or_the_file_says_continue(succeeds: bool) -> None:
    cluster = array(12, "" if succeeds else "on_failure: continue\n")
    end(cluster, 11, 0 if succeeds else 1)
    for index in range(10):
        end(cluster, index, 1)
    assert job(cluster).state == "running"
    assert states(cluster)[10] == "running"


def test_ten_tasks_that_all_fail_have_all_ended() -> None:
    cluster = array(10)
    for index in range(10):
        end(cluster, index, 1)
    assert job(cluster).state == "failed"
    assert job(cluster).reason.startswith("10 of 10 tasks failed; the first: task job-1/0 ")


def test_what_depends_on_an_array_fails_when_the_array_has_ended() -> None:
    cluster = array(2)
    waits = parse_job(ARRAY, file_name="j", owner="me", catalog=CATALOG, workdir=None, name="next")
    spec = JobSpec("next", "me", waits.tasks, stage=JobStage(depends_on=(NAME,)))
    cluster.handle(JobSubmitted("command", spec), at=0)
    after = JobId("next-2")
    end(cluster, 0, 7)
    assert cluster.state.jobs[after].state == "pending"
    end(cluster, 1, 0, at=61_000)
    assert cluster.state.jobs[after].state == "failed"
    assert cluster.state.jobs[after].finished_ms == 61_000


def test_a_master_that_restarts_knows_the_first_failure() -> None:
    cluster = array(3)
    end(cluster, 2, 7)
    again = Cluster(State.restored(CATALOG, cluster.machine.take_changes()))
    again.machine.recover(Millis(60_000))
    assert states(again) == ["running", "running", "failed"]
    for session, index in enumerate((0, 1), 1):
        place = again.state.runs[run_id(NAME, index)].instance
        assert place is not None
        again.state.sessions.begin(place, session)
        end(again, index, index, at=70_000)
    assert (job(again).state, job(again).exit_code) == ("failed", 7)


def test_a_failed_task_waits_for_nothing_and_its_place_is_planned_for() -> None:
    cluster = array(3)
    rounds = cluster.rounds
    end(cluster, 0, 7)
    assert cluster.state.tasks.succeeded(NAME) == 0
    assert cluster.state.tasks.failed(NAME) == 1
    assert cluster.rounds > rounds, "others may have its place"
    view = cluster.job_view(NAME)
    assert (view.array.size, view.progress.succeeded, view.progress.failed, view.progress.over) == (
        3,
        0,
        1,
        1,
    )
    assert [str(it) for it in view.runs] == ["job-1/1", "job-1/2"]


def test_failed_tasks_teach_nothing_of_how_long_others_take() -> None:
    cluster = array(4)
    end(cluster, 0, 7, at=1_000)
    end(cluster, 1, 0, at=60_000)
    (finished,) = cluster.state.finished_tasks.of(job(cluster)).values()
    assert (finished.tasks, finished.total_ms) == (1, 60_000)


def test_a_pilot_that_fails_is_not_waited_for() -> None:
    cluster = array(4)
    known = cluster.state.finished_tasks
    known.choose(job(cluster), (0, 1), cluster.state.members(NAME))
    end(cluster, 0, 7)
    assert known.pilots_left(NAME) == 1
    end(cluster, 1, 0, at=61_000)
    assert known.pilots_left(NAME) == 0
    # Chosen anew after a restart, those that failed have ended as well.
    known.choose(job(cluster), (0, 2), cluster.state.members(NAME))
    assert known.pilots_left(NAME) == 1


def test_the_time_that_an_array_needs_is_that_of_tasks_that_have_not_ended() -> None:
    cluster = array(3, "concurrency: 1\nduration: 100s\n")
    before = slack._left_ms(cluster.state, job(cluster), Millis(0))
    assert before == 300_000, "one runs and two wait for it"
    end(cluster, 0, 7, at=0)
    after = slack._left_ms(cluster.state, job(cluster), Millis(0))
    assert after == 200_000


def test_gangs_have_nothing_to_go_on_with() -> None:
    text = "run: x\nresources: {cpus: 1, memory: 1GiB}\ntasks: 2\non_failure: stop\n"
    with pytest.raises(InvalidJob) as refused:
        parse_job(text, file_name="j", owner="me", catalog=CATALOG, workdir=None, name="job")
    (problem,) = refused.value.problems
    assert (problem.key, problem.line) == ("on_failure", 4)
    assert "kind: array" in problem.hint


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("kind: array\n", OnFailure.CAUTIOUS),
        ("kind: array\non_failure: continue\n", OnFailure.CONTINUE),
        ("kind: array\non_failure: stop\n", OnFailure.STOP),
        ("tasks: 2\n", OnFailure.STOP),
        ("forks: 2\ntotal_steps: 100\n", OnFailure.STOP),
    ],
)
def test_what_a_file_says_is_kept_with_the_job(text: str, meant: OnFailure) -> None:
    whole = f"run: x\nresources: {{cpus: 1, memory: 1GiB}}\n{text}"
    spec = parse_job(whole, file_name="j", owner="me", catalog=CATALOG, workdir=None, name="job")
    assert spec.failing.on_failure is meant


def test_arrays_of_older_journals_stop_with_the_first_failure() -> None:
    (spec,) = codec.SPECS.decode(['{"name":"old","owner":"me","tasks":[],"kind":"array"}'])
    assert spec.failing.on_failure is OnFailure.STOP


def test_a_task_of_two_runs_fails_with_both_and_the_array_goes_on() -> None:
    cluster = array(3, "stragglers: duplicate\n")
    context = cluster.machine._context
    own = cluster.state.runs[run_id(NAME, 0)]
    beside = cluster.state.runs[run_id(NAME, 1)].instance
    assert beside is not None
    settling.begin(context, own, beside, "late")
    cluster.handle(at=1_000)
    extra = run_id(NAME, 0, 1)
    cluster.say(extra, Phase.RUNNING, at=2_000)
    cluster.say(extra, Phase.EXITED, at=3_000, exit_code=5)
    assert cluster.state.runs[extra].state is RunState.FAILED
    assert cluster.state.tasks.failed(NAME) == 0, "its own run may still succeed"
    end(cluster, 0, 6)
    assert cluster.state.tasks.failed(NAME) == 1
    assert job(cluster).state == "running"
    end(cluster, 1, 0)
    end(cluster, 2, 0)
    assert (job(cluster).state, job(cluster).exit_code) == ("failed", 6)
