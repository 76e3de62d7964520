"""Jobs that run after others: how the command submits and shows them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eva_client.cli import main
from eva_wire._proto import api_pb2 as pb
from eva_wire.jobfile import check_job, in_order, predecessors_of
from eva_wire.values.errors import DuplicateName, InvalidJob
from tests.fakes.rpc.api import NOW_MS, FakeApi

Run = Callable[..., Result]
CHAIN = sorted((Path(__file__).parents[3] / "examples" / "chain").glob("*.yaml"))


class PickyApi(FakeApi):
    """Refuses to accept one file.

    Attributes:
        refused: The end of its name.
    """

    refused = "/"

    def Submit(self, request, context):
        if request.file_name.endswith(self.refused):
            self.abort(DuplicateName("a job of this name is active already"), context)
        return super().Submit(request, context)


@pytest.fixture
def api() -> Iterator[PickyApi]:
    with PickyApi() as api:
        yield api


@pytest.fixture
def eva(api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    api.be_the_only_one(monkeypatch, tmp_path)
    return lambda *arguments: CliRunner().invoke(main, list(map(str, arguments)))


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def file(name: str, *after: str) -> Path:
        path = tmp_path / f"{name}.yaml"
        path.write_text(
            f"name: {name}\nrun: x\nresources: {{cpus: 1, memory: 1GiB}}\n"
            + (f"after: [{', '.join(after)}]\n" if after else "")
        )
        return path

    return file


def named(call: pb.SubmitRequest) -> str:
    return Path(call.file_name).stem


def test_files_that_name_each_other_are_submitted_in_their_order(
    eva: Run, api: FakeApi, write: Callable[..., Path]
) -> None:
    files = [write("c", "b", "a", "old-7"), write("b", "a"), write("a")]
    result = eva("submit", *files, "--env", "A=1")
    assert result.exit_code == 0, result.stderr
    # Ids are told in the order of the files.
    assert result.stdout == "job-3\njob-2\njob-1\n"
    checks = [call.request for call in api.of("Check")]
    assert [(named(it), sorted(it.coming), dict(it.envs)) for it in checks] == [
        ("a", [], {"A": "1"}),
        ("b", ["a"], {"A": "1"}),
        ("c", ["a", "b"], {"A": "1"}),
    ]
    submissions = [call.request for call in api.of("Submit")]
    assert [(named(it), dict(it.after_ids)) for it in submissions] == [
        ("a", {}),
        ("b", {"a": "job-1"}),
        ("c", {"a": "job-1", "b": "job-2"}),
    ]
    methods = [call.method for call in api.calls]
    assert methods.index("Submit") > max(i for i, it in enumerate(methods) if it == "Check")


def test_a_mistake_that_only_the_master_sees_submits_none(
    eva: Run, api: FakeApi, write: Callable[..., Path]
) -> None:
    api.failures["Check"] = [InvalidJob("b.yaml:4:9: after[0]: you have no job 'x'")]
    result = eva("submit", write("a"), write("b", "a", "x"))
    assert result.exit_code == 2
    assert "you have no job 'x'" in result.stderr
    assert api.of("Submit") == []


def test_a_circle_is_refused_before_anything_is_sent(
    eva: Run, api: FakeApi, write: Callable[..., Path]
) -> None:
    result = eva("submit", write("a", "b"), write("b", "c"), write("c", "a"))
    assert result.exit_code == 2
    assert "these jobs wait for each other in a circle: a after b after c after a" in result.stderr
    assert "c.yaml:4:9: after[0]: " in result.stderr
    assert api.calls == []


def test_ids_of_what_was_submitted_are_told_though_the_next_one_is_refused(
    eva: Run, api: PickyApi, write: Callable[..., Path]
) -> None:
    api.refused = "b.yaml"
    result = eva("submit", write("b", "a"), write("a"), write("c"))
    assert result.exit_code == 2
    assert "active already" in result.stderr
    assert result.stdout == "job-1\n", "that of a, for which b is still to come"


def test_one_file_is_sent_as_it_is(eva: Run, api: FakeApi, write: Callable[..., Path]) -> None:
    assert eva("submit", write("a", "old")).exit_code == 0
    assert [call.method for call in api.calls] == ["Submit"]
    assert not api.of("Submit")[0].request.after_ids


def waiting(**more: object) -> pb.Job:
    fields = {
        "id": "c-3",
        "name": "c",
        "owner": "ana",
        "state": "pending",
        "submitted_ms": NOW_MS,
        "after": ["a-1", "b-2"],
        "waits_for": ["b-2"],
        "tasks": [pb.Task(state="waiting", waiting_for="runs after b-2")],
    }
    return pb.Job(**{**fields, **more})


def test_it_is_shown_what_a_job_waits_for(eva: Run, api: FakeApi) -> None:
    api.jobs["c-3"] = waiting()
    api.explanation = pb.Explanation(kind="job", subject="c-3", job=waiting())
    assert "runs after b-2" in eva("ls").stdout
    status = eva("status", "c-3").stdout
    assert "a-1, b-2" in status
    assert "waits for  b-2" in status
    shown = json.loads(eva("status", "c-3", "--json").stdout)
    assert (shown["after"], shown["waits_for"]) == (["a-1", "b-2"], ["b-2"])
    assert (shown["unmet"], shown["unmet_origin"]) == (None, None)
    explained = eva("explain", "c-3").stdout
    assert "it waits for 1 job to succeed" in explained
    assert "b-2" in explained
    assert "next round" not in explained


def test_it_is_shown_of_which_dag_a_job_is_a_stage(eva: Run, api: FakeApi) -> None:
    api.jobs["c-3"] = waiting(dag="nightly")
    assert "dag        nightly" in eva("status", "c-3").stdout
    assert json.loads(eva("status", "c-3", "--json").stdout)["dag"] == "nightly"
    api.jobs["c-3"] = waiting()
    assert "nightly" not in eva("status", "c-3").stdout
    assert json.loads(eva("status", "c-3", "--json").stdout)["dag"] is None


def test_a_thousand_are_counted(eva: Run, api: FakeApi) -> None:
    api.jobs["c-3"] = waiting(after=[f"j-{n}" for n in range(1_000)], waits_for=[])
    status = eva("status", "c-3").stdout
    assert "j-19 and 980 more; --json has them all" in " ".join(status.split())
    assert "j-20" not in status


def test_it_is_shown_why_a_job_was_given_up(eva: Run, api: FakeApi) -> None:
    reason = "b-2, after which it was to run, failed because a-1 did"
    api.jobs["c-3"] = waiting(
        state="failed", reason=reason, unmet="b-2", unmet_origin="a-1", waits_for=[]
    )
    assert reason in " ".join(eva("status", "c-3").stdout.split())
    shown = json.loads(eva("status", "c-3", "--json").stdout)
    assert (shown["unmet"], shown["unmet_origin"]) == ("b-2", "a-1")


def test_the_example_is_a_chain_of_three() -> None:
    for file in CHAIN:
        check_job(file.read_text(), file_name=file.name)
    found = [predecessors_of(file.read_text(), file_name=file.name) for file in CHAIN]
    order = [found[number].name for number in in_order(found)]
    assert order == ["chain-prepare", "chain-train", "chain-report"]
