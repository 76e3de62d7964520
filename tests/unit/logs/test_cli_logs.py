"""``eva logs``: parts, all tasks, and what it says beside what tasks wrote."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eva_client.cli import main
from eva_client.cli.session import Patience
from eva_wire._proto import api_pb2 as pb
from tests.fakes.rpc.api import NOW_MS, FakeApi

Run = Callable[..., Result]
MOVED = pb.LogAttempt(
    number=2,
    instance="i00005",
    started_ms=1_000_000,
    ended_ms=940_000,
    ended="it moved to \x1b[31mi00005",
)
BETWEEN = (
    "---- attempt 2 on i00005, 1970-01-01 00:16:40 UTC; "
    "the one before ended 1970-01-01 00:15:40 UTC: it moved to ^[[31mi00005 ----"
)


def log() -> list[bytes | pb.LogChunk]:
    return [
        pb.LogChunk(data=b"a\nb", attempt=1, offset=0, begins=pb.LogAttempt(number=1)),
        pb.LogChunk(data=b"c\n", attempt=1, offset=3),
        pb.LogChunk(data=b"d\xff\n", attempt=2, offset=0, begins=MOVED),
        pb.LogChunk(data=b"end", attempt=2, offset=3),
    ]


@pytest.fixture
def api() -> Iterator[FakeApi]:
    tasks = [
        pb.Task(index=0, name="chief", state="waiting"),
        pb.Task(index=1, name="worker", state="running"),
        pb.Task(index=2, name="worker", state="running"),
    ]
    train = pb.Job(id="train-1", name="train", state="running", submitted_ms=NOW_MS, tasks=tasks)
    alone = pb.Job(id="alone-2", name="alone", state="running", tasks=[pb.Task()])
    with FakeApi(jobs={train.id: train, alone.id: alone}) as api:
        api.logs = log()
        yield api


@pytest.fixture
def eva(api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    api.be_the_only_one(monkeypatch, tmp_path)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(main, list(arguments))

    return run


def test_a_line_stands_between_attempts_and_the_bytes_stay_as_they_are(eva: Run) -> None:
    result = eva("logs", "alone")
    assert result.stdout_bytes == b"a\nbc\nd\xff\nend"
    assert result.stderr.splitlines() == [BETWEEN]


def test_parts_are_asked_for(eva: Run, api: FakeApi) -> None:
    assert eva("logs", "alone", "--tail", "5", "--since", "2m").exit_code == 0
    assert eva("logs", "alone", "-n", "0", "-f").exit_code == 0
    assert eva("logs", "alone", "--previous").exit_code == 0
    assert eva("logs", "alone").exit_code == 0
    first, second, third, last = (call.request for call in api.of("Logs"))
    assert (first.tail, first.last_ms) == (5, 120_000)
    assert (second.HasField("tail"), second.tail, second.follow) == (True, 0, True)
    assert third.previous
    assert (last.HasField("tail"), last.last_ms, last.previous) == (False, 0, False)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["alone", "--since", "soon"], "write 30s, 10m or 2h"),
        (["alone", "--previous", "-f"], "over"),
        (["train/0", "--all-tasks"], "name the job alone"),
        (["train", "--all-tasks", "--task", "1"], "name the job alone"),
        (["train/nope"], "its tasks are named chief, worker"),
        (["alone/chief"], "its tasks have no names; write alone-2/0"),
    ],
)
def test_what_makes_no_sense_is_refused(
    eva: Run, api: FakeApi, arguments: list[str], why: str
) -> None:
    result = eva("logs", *arguments)
    assert result.exit_code == 2
    assert why in result.stderr
    assert api.of("Logs") == []


def test_a_task_is_named_by_its_name(eva: Run, api: FakeApi) -> None:
    assert eva("logs", "train/chief").exit_code == 0
    assert eva("logs", "train/2").exit_code == 0
    assert [call.request.task for call in api.of("Logs")] == [0, 2]
    assert "train-1/0" in eva("status", "train/chief").stdout


def test_a_log_says_which_of_several_tasks_it_is(eva: Run) -> None:
    told = "there are 2 other tasks: `eva logs train-1 --all-tasks`"
    assert f"train-1/0; {told}" in eva("logs", "train").stderr
    assert f"train-1/2; {told}" in eva("logs", "train/2").stderr
    assert "other task" not in eva("logs", "alone").stderr
    assert b"other task" not in eva("logs", "train").stdout_bytes


def test_all_tasks_have_prefixes(eva: Run) -> None:
    result = eva("logs", "train", "--all-tasks")
    lines = result.stdout_bytes.split(b"\n")
    assert lines == [
        *(
            b"%s | %s" % (name, line)
            for name in (b"chief", b"    1", b"    2")
            for line in (b"a", b"bc", b"d\xff", b"end")
        ),
        b"",
    ]
    assert [line for line in result.stderr.splitlines() if "attempt" in line] == [
        f"{name} | {BETWEEN}" for name in ("chief", "    1", "    2")
    ]


def test_all_tasks_are_followed_by_a_bounded_number_of_streams(eva: Run, api: FakeApi) -> None:
    many = pb.Job(id="many-3", name="many", state="running", task_count=40)
    for index in range(40):
        many.tasks.add(index=index, state="running" if index % 2 else "waiting")
    api.jobs[many.id] = many
    result = eva("logs", "many", "--all-tasks", "--follow")
    assert result.exit_code == 0
    assert "32 of 40 tasks at a time" in result.stderr
    lines = result.stdout_bytes.decode("utf-8", "backslashreplace").splitlines()
    assert sorted(lines) == sorted(
        f"{index:>2} | {line}" for index in range(40) for line in ("a", "bc", r"d\xff", "end")
    )
    assert all(call.request.follow for call in api.of("Logs"))
    assert {call.request.task for call in api.of("Logs")} == set(range(40))


def test_a_master_that_goes_away_is_told_once_for_all_streams(
    eva: Run, api: FakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Patience, "FIRST_PAUSE_S", 0.01)
    api.breaks = [1, 1, 1]
    result = eva("logs", "train", "--all-tasks", "--follow")
    assert result.exit_code == 0
    assert result.stdout_bytes.count(b"end") == 3
    assert result.stderr.count("still trying") == 1


def test_hostile_lines_keep_their_prefix_on_a_terminal(eva: Run, api: FakeApi) -> None:
    api.logs = [
        pb.LogChunk(
            data=b"10%\r50%\r\n\x1b[2J\n",
            attempt=1,
            begins=pb.LogAttempt(number=1),
        )
    ]
    lines = eva("logs", "train", "--all-tasks", "--no-raw").stdout.splitlines()
    assert lines[:2] == ["chief | 50%", "chief | ^[[2J"]
    raw = eva("logs", "train", "--all-tasks", "--raw").stdout_bytes
    assert raw.startswith(b"chief | 10%\r50%\r\nchief | \x1b[2J\n")


def test_a_line_that_never_ends_is_not_held_back(eva: Run, api: FakeApi) -> None:
    api.logs = [pb.LogChunk(data=b"x" * 60_000, attempt=1, offset=60_000 * n) for n in range(5)]
    lines = eva("logs", "train", "--all-tasks").stdout_bytes.splitlines()
    assert len(lines) == 9
    assert sum(line.count(b"x") for line in lines) == 3 * 300_000


def test_json_has_an_object_per_line_and_attempt(eva: Run) -> None:
    told = [json.loads(line) for line in eva("logs", "alone", "--json").stdout.splitlines()]
    assert [(one.get("attempt"), one.get("text")) for one in told] == [
        (1, None),
        (1, "a"),
        (1, "bc"),
        (2, None),
        (2, "d\\xff"),
        (2, "end"),
    ]
    assert {(one["job"], one["task"]) for one in told} == {("alone-2", 0)}
    assert told[3]["begins"] == {
        "instance": "i00005",
        "started_ms": 1_000_000,
        "before_ended_ms": 940_000,
        "before_ended": "it moved to \x1b[31mi00005",
    }
    every = eva("logs", "train", "--all-tasks", "--json").stdout.splitlines()
    assert {json.loads(line)["task"] for line in every} == {0, 1, 2}


def test_following_goes_on_from_the_position_where_it_broke_off(eva: Run, api: FakeApi) -> None:
    api.breaks = [2, 3]
    result = eva("logs", "-f", "alone", "--tail", "9")
    assert result.stdout_bytes == b"a\nbc\nd\xff\nend"
    assert result.stderr.count("attempt 2") == 1
    calls = [call.request for call in api.of("Logs")]
    assert [(call.from_attempt, call.from_offset) for call in calls] == [(0, 0), (1, 5), (2, 3)]
    assert [call.HasField("tail") for call in calls] == [True, False, False]
