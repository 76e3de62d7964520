"""Lists of very many jobs, against a real server with canned answers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from eva_client.cli import main
from eva_wire._proto import api_pb2 as pb
from tests.fakes.rpc.api import FakeApi


def _job(number: int) -> pb.Job:
    return pb.Job(id=f"many-{number}", owner="ana", state="pending", task_count=1)


def test_ls_asks_for_its_first_page_alone_and_json_for_all(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with FakeApi(jobs={it.id: it for it in map(_job, range(1_201))}) as api:
        api.be_the_only_one(monkeypatch, tmp_path)
        api.page_size = 500
        text = CliRunner().invoke(main, ["ls"]).stdout
        assert text.count("many-") == 200
        assert "... and older ones; `--limit 2000` shows more of them" in text
        (asked,) = (call.request for call in api.of("List"))
        assert asked.page_size == 201
        printed = CliRunner().invoke(main, ["ls", "--json"])
        jobs = json.loads(printed.stdout)["jobs"]
        assert len(jobs) == 1_201
        assert len(api.of("List")) == 1 + 3
        # Each job is a line, however many.
        assert len(printed.stdout.splitlines()) == 1_201 + 4
