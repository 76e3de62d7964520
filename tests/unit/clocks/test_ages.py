"""How long ago something was is told by the master's clock, wherever that of the client stands."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from eva_client.cli import main
from eva_client.cli.session import now_of
from eva_wire._proto import api_pb2 as pb
from tests.fakes.rpc.api import FakeApi, sample_jobs, sample_state

FAR_MS = 3_000_000_000_000
"""The master's time, many years after the client's."""
MINUTE_MS = 60_000


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeApi]:
    jobs = sample_jobs()
    for job in jobs.values():
        job.submitted_ms, job.now_ms = FAR_MS - 17 * MINUTE_MS, FAR_MS
    with FakeApi(jobs=jobs, state=sample_state()) as api:
        api.be_the_only_one(monkeypatch, tmp_path)
        yield api


def eva(*arguments: str) -> str:
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def test_ages_are_by_the_masters_clock(api: FakeApi) -> None:
    assert "17m 0s" in eva("ls", "--all")
    assert "17m 0s ago" in eva("status", "resnet18-3")


def test_a_master_that_does_not_say_its_time_has_that_of_the_client() -> None:
    assert now_of(pb.Job(now_ms=5), pb.Job(now_ms=9), pb.Job()) == 9
    assert now_of(pb.Job()) == now_of() > 1_700_000_000_000


def test_nodes_tell_that_the_clock_was_set(api: FakeApi) -> None:
    assert "was set" not in eva("nodes")
    api.state.clock = "the clock of the master's machine was set 2h 0m forward"
    assert "was set 2h 0m forward" in eva("nodes")
