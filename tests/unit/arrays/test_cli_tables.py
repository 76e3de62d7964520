"""`eva submit --array` and `eva plan --array`."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eva_client.cli import main
from tests.fakes.rpc.api import FakeApi

Run = Callable[..., Result]

JOB = "name: a\nrun: echo $lr\nresources: {cpus: 1, memory: 1GiB}\n"
TABLE = "name,lr\nfirst,1\nsecond,2\n"


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi() as api:
        yield api


@pytest.fixture
def eva(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> Run:
    api.be_the_only_one(monkeypatch, tmp_path_factory.mktemp("settings"))
    here = tmp_path_factory.mktemp("here")
    (here / "job.yaml").write_text(JOB)
    (here / "grid.csv").write_text(TABLE)
    monkeypatch.chdir(here)

    def run(*arguments: str, **options: object) -> Result:
        return CliRunner().invoke(main, list(arguments), **options)

    return run


def test_the_table_is_uploaded_once_and_named_by_its_digest(eva: Run, api: FakeApi) -> None:
    for _ in range(2):
        assert eva("submit", "job.yaml", "--array", "grid.csv").exit_code == 0
    digest = hashlib.sha256(TABLE.encode()).hexdigest()
    assert api.blobs == {digest: TABLE.encode()}
    assert len(api.of("PutBlob")) == 1
    table = api.of("Submit")[0].request.table
    assert (table.file_name, table.digest, table.names) == ("grid.csv", digest, "")


def test_a_table_may_come_from_a_pipe_and_names_from_any_column(eva: Run, api: FakeApi) -> None:
    result = eva("submit", "job.yaml", "--array", "-", "--names", "lr", input="lr\nx\ny\n")
    assert result.exit_code == 0, result.output
    assert api.of("Submit")[0].request.table.names == "lr"


def test_a_preview_uploads_nothing(eva: Run, api: FakeApi) -> None:
    assert eva("plan", "job.yaml", "--array", "grid.csv").exit_code == 0
    assert api.of("Plan")[0].request.table.rows == 2
    assert not api.of("MissingBlobs")
    assert not api.of("PutBlob")


@pytest.mark.parametrize("command", ["submit", "plan"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"name,lr\nfirst,1\nsecond\n", "grid.csv:3:1: the row has 1 value"),
        (b"name,lr\nfirst,1\nfirst,2\n", "grid.csv:3:1: the task 'first' is on line 2, too"),
        (b"lr\n\xe9\n", "grid.csv:2:1: the line is no text in UTF-8"),
        (b"EVA_JOB_ID\n1\n", "grid.csv:1:1: column: EVA_JOB_ID is set by the cluster"),
    ],
)
def test_a_bad_table_is_told_before_anything_is_asked_of_the_master(
    eva: Run, api: FakeApi, command: str, content: bytes, words: str
) -> None:
    Path("grid.csv").write_bytes(content)
    result = eva(command, "job.yaml", "--array", "grid.csv")
    assert result.exit_code == 2
    assert words in result.stderr
    assert not api.calls


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("job.yaml", "--array", "none.csv"), "does not exist"),
        (("job.yaml", "--array", "."), "is a directory"),
        (("job.yaml", "--names", "lr"), "--names chooses a column of a table"),
        (("job.yaml", "job.yaml", "--array", "grid.csv"), "submit the files one by one"),
        (("-", "--array", "-"), "cannot both be read from stdin"),
    ],
)
def test_options_that_mean_nothing_are_refused(
    eva: Run, api: FakeApi, arguments: tuple[str, ...], words: str
) -> None:
    result = eva("submit", *arguments, input=JOB)
    assert result.exit_code == 2
    assert words in result.stderr
    assert not api.calls


def test_a_clash_with_a_variable_is_told(eva: Run, api: FakeApi) -> None:
    result = eva("submit", "job.yaml", "--array", "grid.csv", "--env", "lr=3")
    assert result.exit_code == 2
    assert "grid.csv has a column lr, too" in result.stderr
    assert not api.calls
