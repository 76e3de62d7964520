"""Uploads of `eva submit`: what it sends of a working directory, asks first, and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eva_client.cli import main, uploading
from eva_client.cli.session import Patience
from tests.fakes.rpc.api import FakeApi, sample_jobs

Run = Callable[..., Result]
JOB = "name: a\nrun: {}\nresources: {{cpus: 1, memory: 1GiB}}\nworkdir: {}\n"


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with FakeApi(jobs=sample_jobs()) as api:
        yield api


@pytest.fixture
def eva(api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    api.be_the_only_one(monkeypatch, tmp_path)
    monkeypatch.setattr(Patience, "FIRST_PAUSE_S", 0.01)
    return lambda *arguments, **options: CliRunner().invoke(main, list(arguments), **options)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "train.py").write_text("print()")
    (directory / "job.yaml").write_text(JOB.format("python train.py", "."))
    return directory


def sent(api: FakeApi) -> list[str]:
    manifest = json.loads(api.blobs[api.of("Submit")[-1].request.workdir])
    return [one["path"] for one in manifest["files"]]


def said(result: Result) -> str:
    return " ".join(result.stderr.split())


def test_a_line_says_what_is_left_out_and_how_much(eva: Run, api: FakeApi, project: Path) -> None:
    (project / ".env").write_text("TOKEN=1")
    (project / ".venv").mkdir()
    (project / ".venv" / "lib").write_bytes(bytes(2_500_000))
    result = eva("submit", str(project / "job.yaml"))
    assert result.exit_code == 0
    assert sent(api) == ["job.yaml", "train.py"]
    assert "not uploaded of project: .env, .venv/ (2.5 MB)" in said(result)
    assert "!NAME" in said(result)
    (project / ".evaignore").write_text("!.env\n")
    assert eva("submit", str(project / "job.yaml")).exit_code == 0
    assert ".env" in sent(api)


@pytest.mark.parametrize(
    ("run", "name"),
    [
        ("source .venv/bin/activate && python train.py", ".venv"),
        ("python train.py --env-file=.env", ".env"),
        ("|\n  cd sub\n  . ./.env\n  python train.py", ".env"),
        ("ssh -i keys/id_rsa host", "id_rsa"),
        ("python serve.py --key 'server.pem'", "server.pem"),
    ],
)
def test_a_command_that_needs_what_is_left_out_is_refused(
    eva: Run, api: FakeApi, project: Path, run: str, name: str
) -> None:
    (project / ".env").write_text("TOKEN=1")
    (project / ".venv").mkdir()
    (project / "keys").mkdir()
    (project / "keys" / "id_rsa").write_text("x")
    (project / "server.pem").write_text("-----BEGIN RSA PRIVATE KEY-----")
    (project / "job.yaml").write_text(JOB.format(run, "."))
    result = eva("submit", str(project / "job.yaml"))
    assert result.exit_code == 2
    assert f"run names {name}" in said(result)
    assert f"!{name}" in said(result)
    assert api.of("Submit") == []


@pytest.mark.parametrize("run", ["python train.environment", "python x.env.py", "echo myid_rsa"])
def test_names_that_only_look_alike_are_no_matter(eva: Run, project: Path, run: str) -> None:
    (project / ".env").write_text("TOKEN=1")
    (project / "id_rsa").write_text("x")
    (project / "job.yaml").write_text(JOB.format(run, "."))
    assert eva("submit", str(project / "job.yaml")).exit_code == 0


def test_a_hidden_directory_beside_the_job_file_needs_a_word(
    eva: Run, api: FakeApi, project: Path
) -> None:
    file = project / "job.yaml"
    for hidden in (".aws", ".config/gcloud"):
        (project.parent / hidden).mkdir(parents=True)
        (project.parent / hidden / "credentials").write_text("secret")
        file.write_text(JOB.format("ls", f"../{hidden}"))
        result = eva("submit", str(file))
        assert result.exit_code == 2
        assert "in the hidden directory ." in said(result)
        assert "--allow-outside" in said(result)
    assert api.calls == []
    assert eva("submit", "--allow-outside", str(file)).exit_code == 0
    for plain in ("../data", ".hidden-of-its-own"):
        (project / plain).mkdir()
        file.write_text(JOB.format("ls", plain))
        assert eva("submit", str(file)).exit_code == 0


def test_a_directory_above_the_job_file_needs_a_word(eva: Run, api: FakeApi, project: Path) -> None:
    (project / "jobs").mkdir()
    file = project / "jobs" / "job.yaml"
    for workdir in ("..", str(project.parent), "/"):
        file.write_text(JOB.format("python train.py", workdir))
        result = eva("submit", str(file))
        assert result.exit_code == 2
        assert "is above the directory of the job file" in said(result)
        assert "--allow-outside" in said(result)
    assert api.calls == []
    file.write_text(JOB.format("python train.py", ".."))
    assert eva("submit", "--allow-outside", str(file)).exit_code == 0
    assert "train.py" in sent(api)


def test_a_build_context_above_the_job_file_does_too(eva: Run, project: Path) -> None:
    (project / "jobs").mkdir()
    (project / "Dockerfile").write_text("FROM busybox")
    file = project / "jobs" / "job.yaml"
    file.write_text(JOB.format("x", ".") + "build: {context: ..}\n")
    assert "build.context" in said(eva("submit", str(file)))
    assert eva("submit", "--allow-outside", str(file)).exit_code == 0


@pytest.fixture
def small_question(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploading, "ASKED_ABOVE", 1_000)


@pytest.mark.usefixtures("small_question")
def test_much_is_told_where_nobody_can_be_asked(eva: Run, api: FakeApi, project: Path) -> None:
    (project / "data.bin").write_bytes(bytes(2_000_000))
    result = eva("submit", str(project / "job.yaml"))
    assert result.exit_code == 0
    assert "2.0 MB" in said(result)
    assert "the largest: data.bin 2.0 MB" in said(result)
    # The store has it now, so that nothing is to be said.
    again = eva("submit", str(project / "job.yaml"))
    assert "would be uploaded" not in said(again)
    (project / "more.bin").write_bytes(b"1" * 2_000_000)
    assert "would be uploaded" not in said(eva("submit", "--yes", str(project / "job.yaml")))


@pytest.mark.usefixtures("small_question")
@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("", 1)])
def test_much_is_asked_on_a_terminal(
    eva: Run,
    api: FakeApi,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    code: int,
) -> None:
    (project / "data.bin").write_bytes(bytes(2_000_000))
    monkeypatch.setattr(uploading, "can_ask", lambda: True)
    result = eva("submit", str(project / "job.yaml"), input=answer)
    assert result.exit_code == code
    assert len(api.of("Submit")) == (code == 0)
    if code:
        assert api.of("PutBlob") == []


def test_a_file_that_grows_is_sent_as_far_as_it_went(eva: Run, api: FakeApi, project: Path) -> None:
    log = project / "events.log"
    log.write_bytes(b"one\n")

    def grow() -> None:
        with log.open("ab") as file:
            file.write(b"two\n")

    api.failures["MissingBlobs"] = [grow]
    assert eva("submit", str(project / "job.yaml")).exit_code == 0
    assert b"one\n" in api.blobs.values()


def test_files_that_change_or_go_are_named_all_at_once(
    eva: Run, api: FakeApi, project: Path
) -> None:
    for name in ("a.log", "b.log", "c.log"):
        (project / name).write_text(f"{name} as it was")

    def change() -> None:
        (project / "a.log").write_text("something else")
        (project / "b.log").write_text("short")
        (project / "c.log").unlink()

    api.failures["MissingBlobs"] = [change]
    result = eva("submit", str(project / "job.yaml"))
    assert result.exit_code == 2
    for name in ("a.log", "b.log", "c.log"):
        assert f"{name}: it changed while it was uploaded" in said(result)
    assert "train.py" not in said(result)
    assert ".evaignore" in said(result)
    assert api.of("Submit") == []
