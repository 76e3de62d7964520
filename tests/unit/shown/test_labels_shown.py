"""Jobs listed and shown by their labels, by the command."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eva_client.cli import main
from tests.fakes.rpc.api import FakeApi, sample_jobs

Run = Callable[..., Result]


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi(jobs=sample_jobs()) as api:
        yield api


@pytest.fixture
def eva(api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    api.be_the_only_one(monkeypatch, tmp_path)
    return lambda *arguments: CliRunner().invoke(main, list(arguments))


def test_jobs_are_listed_by_their_labels(eva: Run, api: FakeApi) -> None:
    first, second = list(api.jobs.values())[:2]
    for job in (first, second):
        job.state = "running"
    first.labels.update(team="vision", tier="1")
    second.labels.update(team="vision")
    both = json.loads(eva("ls", "-l", "team=vision", "--json").stdout)["jobs"]
    assert [(job["id"], job["labels"]) for job in both] == [
        (first.id, {"team": "vision", "tier": "1"}),
        (second.id, {"team": "vision"}),
    ]
    one = json.loads(eva("ls", "-l", "team=vision", "--label", "tier=1", "--json").stdout)["jobs"]
    assert [job["id"] for job in one] == [first.id]
    assert "no active jobs with these labels" in eva("ls", "-l", "team=none").stdout
    assert "team=vision, tier=1" in eva("status", first.id).stdout


@pytest.mark.parametrize("stated", [["team"], ["=vision"], ["team=a", "team=b"]])
def test_a_wrong_filter_of_labels_is_refused(eva: Run, stated: list[str]) -> None:
    result = eva("ls", *(argument for pair in stated for argument in ("-l", pair)))
    assert result.exit_code == 2
    assert "KEY=VALUE" in result.output or "two values of team" in result.output


def test_a_job_shows_of_what_receivers_of_notices_are_told(eva: Run, api: FakeApi) -> None:
    job = next(iter(api.jobs.values()))
    job.notify.extend(["end", "late"])
    assert json.loads(eva("status", job.id, "--json").stdout)["notify"] == ["end", "late"]
    lines = [line.split() for line in eva("status", job.id).stdout.splitlines()]
    assert ["notify", "end,", "late"] in lines
