"""The commands that have jobs wait and go on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eva_client.cli import main
from eva_wire._proto import api_pb2 as pb
from eva_wire.values.errors import NotAuthorised
from tests.fakes.rpc.api import FakeApi, sample_jobs

Run = Callable[..., Result]


def _suspended(name: str, by: str, reason: str) -> pb.Job:
    told = pb.Suspension(by=by, since_ms=1_000, reason=reason, job="u-9" if by != "user" else "")
    return pb.Job(
        id=f"{name}-1",
        name=name,
        owner="ada",
        state="suspended",
        suspension=told,
        tasks=[pb.Task(state="waiting", waiting_for=reason)],
    )


@pytest.fixture
def api() -> Iterator[FakeApi]:
    mine = _suspended("mine", "user", "suspended by ada")
    theirs = _suspended("low", "priority", "suspended for u-9, which has a higher priority")
    jobs = {**sample_jobs(), mine.id: mine, theirs.id: theirs}
    with FakeApi(jobs=jobs) as api:
        yield api


@pytest.fixture
def eva(api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    api.be_the_only_one(monkeypatch, tmp_path)
    return lambda *arguments: CliRunner().invoke(main, list(arguments))


def test_what_exists_is_suspended_and_the_rest_is_told(eva: Run, api: FakeApi) -> None:
    ended = next(one for one in sample_jobs().values() if one.state == "failed")
    result = eva("suspend", "nope", "bert", "bert-1", "mine", "low", ended.id)
    assert result.exit_code == 1
    assert [line.split(":")[0] for line in result.stdout.splitlines()] == ["bert-1", "low-1"]
    assert "no job 'nope'" in result.stderr
    assert "mine-1: is suspended already" in result.stderr
    assert f"{ended.id}: has ended already: failed" in result.stderr
    assert [call.request.job for call in api.of("Suspend")] == ["bert-1", "low-1"]
    assert all(call.request.command_id for call in api.of("Suspend"))


def test_what_a_user_has_suspended_goes_on(eva: Run, api: FakeApi) -> None:
    result = eva("resume", "mine", "low", "bert")
    assert (result.exit_code, result.stdout.split(":")[0]) == (0, "mine-1")
    assert "which has a higher priority; it goes on by itself" in result.stderr
    assert "bert-1: is not suspended" in result.stderr
    assert [call.request.job for call in api.of("Resume")] == ["mine-1"]


@pytest.mark.parametrize("command", ["suspend", "resume"])
def test_json_has_what_was_done_and_what_was_refused(eva: Run, api: FakeApi, command: str) -> None:
    api.failures[command.capitalize()] = [NotAuthorised("it belongs to ana", hint="ask ana")]
    name = "bert" if command == "suspend" else "mine"
    result = eva(command, name, "nope", "low", "--json")
    told = json.loads(result.stdout)
    assert result.exit_code == 1
    assert [it["id"] for it in told["jobs"]] == ["low-1"]
    assert [it["job"] for it in told["refused"]] == [name, "nope"]
    assert told["refused"][0] == {"job": name, "message": "it belongs to ana", "hint": "ask ana"}
    assert told["jobs"][0]["changed"] is (command == "suspend")


def test_lists_say_who_has_suspended_a_job(eva: Run) -> None:
    shown = json.loads(eva("ls", "--json").stdout)["jobs"]
    (low,) = (it for it in shown if it["id"] == "low-1")
    assert low["state"] == "suspended"
    assert low["suspension"] == {
        "by": "priority",
        "since_ms": 1_000,
        "reason": "suspended for u-9, which has a higher priority",
        "job": "u-9",
    }
    assert "suspended by ada" in " ".join(eva("status", "mine").stdout.split())
    (bert,) = (it for it in shown if it["id"] == "bert-1")
    assert bert["suspension"] is None
    assert {task["suspension"] for task in bert["tasks"]} == {None}


@pytest.mark.parametrize("amount", ["$10", "10", " 10.00 ", "$ 10"])
def test_a_cap_is_raised_with_the_resumption(eva: Run, api: FakeApi, amount: str) -> None:
    result = eva("resume", "mine", "--max-cost", amount)
    assert result.exit_code == 0, result.stderr
    (call,) = api.of("Resume")
    assert call.request.max_cost_micro_usd == 10_000_000


@pytest.mark.parametrize("amount", ["ten", "0", "$0", "-1", "", "$$10", "1e3", "1000001", "9" * 15])
def test_a_cap_that_is_none_is_refused_with_what_to_write(
    eva: Run, api: FakeApi, amount: str
) -> None:
    result = eva("resume", "mine", "--max-cost", amount)
    assert result.exit_code == 2
    assert "such as 10 (a shell takes" in " ".join(result.stderr.split())
    assert api.of("Resume") == []


def test_a_job_at_its_cap_is_asked_of_the_master(eva: Run, api: FakeApi) -> None:
    api.jobs["rich-1"] = _suspended("rich", "cost", "suspended at its max_cost: $4 of $5 are spent")
    assert eva("resume", "rich").exit_code == 0
    assert [call.request.job for call in api.of("Resume")] == ["rich-1"]
    assert not api.of("Resume")[0].request.HasField("max_cost_micro_usd")
