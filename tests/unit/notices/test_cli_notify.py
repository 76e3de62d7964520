"""The command notify, against an API that answers as it is told."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eva_client.cli import main
from eva_wire._proto import api_pb2 as pb
from tests.fakes.rpc.api import NOW_MS, FakeApi

Run = Callable[..., Result]
GOOD = pb.NoticeTrial(
    receiver="team", url="https://a.example", accepted=True, status=200, took_ms=1_234
)
BAD = pb.NoticeTrial(
    receiver="pager", url="https://b.example", took_ms=5, reason="no \x1b[2J", hint="look"
)


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as api:
        api.notices.trials = {"team": GOOD, "pager": BAD}
        api.notices.receivers = [
            pb.Receiver(name="team", url="https://a.example", sent=3),
            pb.Receiver(
                name="pager",
                url="https://b.example",
                waiting=1_000,
                dropped=12,
                failing_ms=NOW_MS - 60_000,
                reason="it answers 500",
                attention="pager takes no notices",
            ),
        ]
        api.notices.now_ms = NOW_MS
        yield api


@pytest.fixture
def eva(api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    api.be_the_only_one(monkeypatch, tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *arguments: CliRunner().invoke(main, ["notify", *arguments])


def test_a_trial_prints_what_happened(eva: Run) -> None:
    result = eva("test", "team")
    assert result.exit_code == 0
    assert result.stdout == "team (https://a.example) took it: 200 after 1,234 ms\n"


def test_a_receiver_that_did_not_take_it_is_a_failure(eva: Run) -> None:
    result = eva("test")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "team (https://a.example) took it: 200 after 1,234 ms",
        "pager (https://b.example) did not take it after 5 ms: no  [2J",
        "  hint: look",
    ]
    trials = json.loads(eva("test", "--json").stdout)["trials"]
    assert [(trial["accepted"], trial["status"]) for trial in trials] == [
        (True, 200),
        (False, None),
    ]


def test_without_receivers_it_says_so(eva: Run, api: FakeApi) -> None:
    api.notices.trials.clear()
    assert "no receivers are set up" in eva("test").stdout


def test_a_list_shows_what_waits_and_why(eva: Run) -> None:
    lines = [line.split() for line in eva("ls").stdout.splitlines()]
    assert lines[0] == ["NAME", "URL", "WAITING", "SENT", "DROPPED", "STATE"]
    assert lines[1][:5] == ["team", "https://a.example", "0", "3", "0"]
    assert lines[2][:5] == ["pager", "https://b.example", "1,000", "0", "12"]
    assert "it answers 500" in " ".join(lines[2])
    (team, pager) = json.loads(eva("ls", "--json").stdout)["receivers"]
    assert (team["failing_ms"], team["attention"]) == (None, "")
    assert (pager["failing_ms"], pager["dropped"]) == (NOW_MS - 60_000, 12)
