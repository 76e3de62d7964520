"""`eva node`: owned nodes and their tokens."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eva_client.cli import main
from eva_wire._proto import api_pb2 as pb
from tests.fakes.rpc.api import FakeApi, sample_bill, sample_jobs, sample_plan, sample_state

Run = Callable[..., Result]


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi(
        jobs=sample_jobs(), state=sample_state(), bill=sample_bill(), plan=sample_plan()
    ) as api:
        yield api


@pytest.fixture
def eva(api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    api.be_the_only_one(monkeypatch, tmp_path)

    def run(*arguments: str, **options: object) -> Result:
        return CliRunner().invoke(main, list(arguments), **options)

    return run


def _node(*, joined: bool) -> pb.Node:
    room = pb.Resources(gpus=8, milli_cpus=64_000, memory_mib=524_288)
    return pb.Node(name="rack1", type="rack.large", capacity=room, fence_ms=600_000, joined=joined)


def test_a_token_is_written_for_its_owner_alone(eva: Run, api: FakeApi, tmp_path: Path) -> None:
    file = tmp_path / "token"
    told = eva("node", "token", "rack1", "--out", str(file)).stdout
    assert file.read_text() == "eva-node.secret\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert "secret" not in told
    assert eva("node", "token", "rack1", "--out", str(file)).exit_code != 0


def test_a_token_as_json(eva: Run, api: FakeApi) -> None:
    told = json.loads(eva("node", "token", "rack1", "--expires", "2h", "--json").stdout)
    assert (told["node"], told["type"], told["token"]) == ("rack1", "own.small", "eva-node.secret")


def test_what_is_asked_of_a_node(eva: Run, api: FakeApi) -> None:
    told = json.loads(eva("node", "drain", "rack1", "--json").stdout)
    assert told == {"node": "rack1", "done": "drain"}
    eva("node", "resume", "rack1")
    eva("node", "gone", "rack1", "-y")
    eva("node", "remove", "rack1", "-y")
    assert api.node_verbs == [(("rack1"), verb) for verb in ("drain", "resume", "gone", "remove")]


def test_nodes_that_are_not_here_are_listed(eva: Run, api: FakeApi) -> None:
    api.nodes.append(_node(joined=False))
    text = eva("nodes").stdout
    assert "rack1" in text
    assert "eva node token rack1" in text
    (told,) = json.loads(eva("nodes", "--json").stdout)["nodes"]
    assert (told["name"], told["joined"], told["instance"]) == ("rack1", False, None)


def test_a_drained_node_says_so(eva: Run, api: FakeApi) -> None:
    api.state.instances[0].draining = "drained by ops"
    assert "drained by ops" in eva("nodes").stdout


def test_nodes_tells_for_which_job_an_empty_instance_stays(eva: Run, api: FakeApi) -> None:
    first = api.state.instances[0]
    first.empty_ms, first.kept_until_ms = api.state.now_ms - 1_000, api.state.now_ms + 69_000
    assert "empty, kept until the next plan, for 1m 9s more at most" in eva("nodes").stdout
    first.kept_for = "next-7"
    assert "empty, kept for next-7, for 1m 9s more at most" in eva("nodes").stdout
    told = json.loads(eva("nodes", "--json").stdout)["instances"][0]
    assert (told["kept_for"], told["kept_until_ms"]) == ("next-7", first.kept_until_ms)


def test_cost_tells_what_empty_instances_cost_that_stayed(eva: Run, api: FakeApi) -> None:
    assert "kept for tasks that waited" not in eva("cost").stdout
    api.bill.kept_micro_usd = 120_000
    line = "of what is idle $0.1200 is for instances that were kept for tasks that waited"
    assert line in eva("cost").stdout
    assert json.loads(eva("cost", "--json").stdout)["kept_micro_usd"] == 120_000
