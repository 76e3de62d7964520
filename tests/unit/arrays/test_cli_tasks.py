"""One task of a job, a range of its tasks, and what is shown of a large job."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eva_client.cli import main
from eva_client.cli.session import console
from eva_client.cli.views import job_tasks
from eva_client.cli.waiting import Display, progress_table
from eva_wire._proto import api_pb2 as pb
from tests.fakes.rpc.api import NOW_MS, FakeApi

Run = Callable[..., Result]

SIZE = 2_500
FAILED = (3, 1_700)


def _task(index: int) -> pb.Task:
    state = "failed" if index in FAILED else "succeeded" if index < 2_000 else "waiting"
    told = (
        {"failures": 2, "reason": "it exited with 7", "exit_code": 7} if state == "failed" else {}
    )
    return pb.Task(index=index, state=state, workload="w", attempt=1, **told)


@pytest.fixture
def api() -> Iterator[FakeApi]:
    sweep = pb.Job(
        id="sweep-1",
        name="sweep",
        owner="ana",
        state="running",
        submitted_ms=NOW_MS,
        tasks=map(_task, range(SIZE)),
    )
    with FakeApi(jobs={sweep.id: sweep}) as api:
        yield api


@pytest.fixture
def eva(api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    api.be_the_only_one(monkeypatch, tmp_path)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, list(arguments))

    return run


def read(result: Result) -> dict[str, object]:
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.stdout)
    return found


def test_one_task_is_named_by_its_index(eva: Run, api: FakeApi) -> None:
    told = read(eva("status", "sweep/1700", "--json"))
    assert (told["job"], told["index"], told["state"]) == ("sweep-1", 1_700, "failed")
    assert (told["failures"], told["reason"], told["exit_code"]) == (2, "it exited with 7", 7)
    (call,) = api.of("Get")
    assert (call.request.tasks.first, call.request.tasks.size) == (1_700, 1)
    text = eva("status", "sweep-1/3").stdout
    assert "sweep-1/3" in text
    assert "it exited with 7" in text


@pytest.mark.parametrize("name", ["sweep/", "sweep/-1", "/3", "sweep/1/2", "sweep/²"])
def test_what_is_no_task_is_refused_before_anybody_is_asked(
    eva: Run, api: FakeApi, name: str
) -> None:
    for command in ("status", "logs"):
        result = eva(command, name)
        assert result.exit_code == 2
        assert "train-1/0" in result.stderr
    assert api.calls == []


def test_an_index_that_the_job_has_not_is_told_as_such(eva: Run) -> None:
    result = eva("status", f"sweep/{SIZE}")
    assert result.exit_code == 1
    assert f"job sweep-1 has no task {SIZE}" in result.stderr


def test_a_range_of_tasks_is_fetched_page_by_page(eva: Run, api: FakeApi) -> None:
    told = read(eva("status", "sweep", "--tasks", "100-2300", "--json"))
    assert [task["index"] for task in told["tasks"]] == list(range(100, 2_301))
    assert told["task_count"] == SIZE
    sizes = [call.request.tasks.size for call in api.of("Get")]
    assert sizes == [1_000, 1_000, 201]
    lines = eva("status", "sweep", "--tasks", "7").stdout.splitlines()
    assert lines[-1].split()[:2] == ["7", "succeeded"]


def test_the_failed_tasks_are_listed_alone(eva: Run) -> None:
    told = read(eva("status", "sweep", "--failed", "--json"))
    assert [task["index"] for task in told["tasks"]] == list(FAILED)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["sweep", "--tasks", "9-3"], "write 3-9"),
        (["sweep", "--tasks", "a-b"], "write A-B"),
        (["sweep/3", "--failed"], "is one task"),
        (["--failed"], "name the job"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    eva: Run, api: FakeApi, arguments: list[str], why: str
) -> None:
    result = eva("status", *arguments)
    assert result.exit_code == 2
    assert why in result.stderr
    assert api.calls == []


def test_logs_of_one_task_by_its_name_or_by_the_option(eva: Run, api: FakeApi) -> None:
    for arguments in (["sweep/7"], ["sweep", "--task", "7"], ["sweep/7", "--task", "7"]):
        assert eva("logs", *arguments).exit_code == 0
    assert {call.request.task for call in api.of("Logs")} == {7}
    assert eva("logs", "sweep").exit_code == 0
    assert api.of("Logs")[-1].request.task == 0
    result = eva("logs", "sweep/7", "--task", "8")
    assert result.exit_code == 2
    assert "names task 7" in result.stderr


def large() -> pb.Job:
    """A job of a million tasks, of which two are shown."""
    return pb.Job(
        id="sweep-1",
        state="running",
        submitted_ms=NOW_MS,
        tasks=[_task(3), pb.Task(index=4, state="running", instance="i-1")],
        task_count=1_000_000,
        tasks_by_state={"succeeded": 250_000, "failed": 1, "running": 64, "waiting": 749_935},
        waiting_for=["no slot is free"],
    )


def test_of_a_large_job_it_is_told_how_many_do_what_and_why_the_rest_waits(
    eva: Run, api: FakeApi
) -> None:
    api.jobs["sweep-1"] = large()
    text = " ".join(eva("status", "sweep-1").stdout.split())
    assert "250,000 succeeded, 1 failed, 64 running, 749,935 waiting" in text
    assert "tasks wait no slot is free" in text
    assert "2 of 1,000,000 tasks are shown" in text
    told = read(eva("status", "sweep-1", "--json"))
    assert (told["task_count"], told["waiting_for"]) == (1_000_000, ["no slot is free"])
    assert len(told["tasks"]) == 2
    (line,) = [it for it in eva("ls").stdout.splitlines() if "sweep-1" in it]
    assert "64/1000000" in line
    assert "25%" in line
    assert "no slot is free" in line


def test_waiting_for_a_large_job_shows_its_share(capsys: pytest.CaptureFixture[str]) -> None:
    job = large()
    # A quarter has succeeded, and one task has failed, of which nothing is left either.
    assert job_tasks.share_done(job) == 0.250_001
    with progress_table(console(stderr=True)) as progress:
        Display(progress, [job.id]).show(job)
    assert "sweep-1: running: no slot is free" in capsys.readouterr().err


def test_a_task_with_an_extra_run_is_shown_with_both_and_counted_once(
    eva: Run, api: FakeApi
) -> None:
    extra = pb.Task(index=1, replica=1, state="running", instance="i-2", why="it is late")
    job = pb.Job(id="late-1", state="running", submitted_ms=NOW_MS)
    job.tasks.extend([_task(0), pb.Task(index=1, state="waiting"), extra, _task(2)])
    api.jobs[job.id] = job
    told = read(eva("status", "late-1/1", "--json"))
    assert (told["index"], told["state"]) == (1, "waiting")
    assert [(run["index"], run["replica"]) for run in told["extra_runs"]] == [(1, 1)]
    text = eva("status", "late-1/1").stdout
    assert "late-1/1+1" in text
    assert "it is late" in text
    assert read(eva("status", "late-1/2", "--json"))["extra_runs"] == []
    assert job_tasks.number(job) == 3
    assert job_tasks.share_done(job) == 2 / 3
