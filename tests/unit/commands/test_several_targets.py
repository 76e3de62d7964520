"""Commands on several targets: those that are refused do not hold up the others."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner, Result

from eva_client.cli import main
from eva_wire._proto import api_pb2 as pb
from eva_wire.values.errors import NotAuthorised, NotFound
from tests.fakes.rpc.api import NOW_MS, FakeApi, sample_jobs

Run = Callable[..., Result]


class DrainedApi(FakeApi):
    """A master with two instances, jobs, tokens and secrets."""

    def Drain(self, request: Any, context: Any) -> pb.DrainResponse:
        self.fail("Drain", context)
        if request.instance not in {"i-1", "i-2"}:
            self.abort(NotFound(f"no instance {request.instance!r}"), context)
        return pb.DrainResponse(instance=pb.Instance(id=request.instance, state="draining"))


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with DrainedApi() as api:
        api.jobs = sample_jobs()
        for name in ("t1", "t2"):
            api.tokens[name] = pb.Token(id=name, owner="ben", role="user", created_ms=NOW_MS)
        for name in ("A", "B"):
            api.secrets["", name] = pb.SetSecretRequest(name=name)
        yield api


@pytest.fixture
def eva(api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    api.be_the_only_one(monkeypatch, tmp_path)
    return lambda *arguments, **how: CliRunner().invoke(main, arguments, **how)


@pytest.mark.parametrize(
    ("command", "first", "last", "done"),
    [
        (["cancel", "-y"], "resnet18-3", "bert-1", "cancelled {}"),
        (["suspend"], "resnet18-3", "bert-1", "{}: suspended; `eva resume` has it go on"),
        (["drain", "-y"], "i-1", "i-2", "{} is draining and takes no new tasks; it is empty"),
        (["secret", "rm", "-y"], "A", "B", "removed {}"),
        (["token", "revoke", "-y"], "t1", "t2", "revoked {}"),
        (["token", "revoke"], "t1", "t2", "revoked {}"),
    ],
)
def test_a_refused_target_holds_up_no_other(
    eva: Run, command: list[str], first: str, last: str, done: str
) -> None:
    result = eva(*command, "nope", first, "nix", last, first, input="y\n")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [done.format(first), done.format(last)]
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert ["nope" in errors[0], "nix" in errors[1], len(errors)] == [True, True, 2]


def test_no_job_is_waited_for_if_one_is_not_found(eva: Run, api: FakeApi) -> None:
    result = eva("wait", "nope", "resnet18-3", "nix")
    assert result.exit_code == 1
    assert ["'nope'" in result.stderr, "'nix'" in result.stderr] == [True, True]
    assert not api.of("Watch")


def test_a_refusal_of_all_of_them_is_said_once(eva: Run, api: FakeApi) -> None:
    api.failures["Drain"] = [NotAuthorised("operators drain instances") for _ in range(2)]
    result = eva("drain", "-y", "i-1", "i-2")
    assert (result.exit_code, result.stderr.count("operators drain")) == (1, 1)


def test_json_of_drains_has_those_that_were_refused(eva: Run) -> None:
    result = eva("drain", "-y", "--json", "nope", "i-2")
    answer = json.loads(result.stdout)
    assert (result.exit_code, result.stderr) == (1, "")
    assert [instance["id"] for instance in answer["instances"]] == ["i-2"]
    assert answer["refused"] == [
        {"instance": "nope", "message": "no instance 'nope'", "hint": None}
    ]


def test_refusals_are_told_though_the_master_goes_away(eva: Run, api: FakeApi) -> None:
    api.failures["Drain"] = [NotFound("no instance 'nope'"), grpc.StatusCode.INTERNAL]
    result = eva("drain", "-y", "nope", "i-1", "i-2")
    assert result.exit_code != 0
    assert "no instance 'nope'" in result.stderr
    assert result.stdout == ""
