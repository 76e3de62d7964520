"""`eva-progress`, as far as it does without an agent."""

from __future__ import annotations

from pathlib import Path

import eva_iterator
import pytest
from eva_iterator import cli


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("EVA_SOCKET", raising=False)
    monkeypatch.setenv("EVA_CHECKPOINT_DIR", str(tmp_path / "checkpoints"))
    return tmp_path


def test_does_nothing_outside_eva(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    assert cli.main(["--steps", "5", "--total", "10", "--metric", "loss=0.5"]) == 0
    monkeypatch.delenv("EVA_CHECKPOINT_DIR")
    assert cli.main(["checkpoint", str(directory)]) == 0
    assert cli.main(["latest"]) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--steps", "-1"],
        ["--steps", "many"],
        ["--steps", "18446744073709551616"],
        ["--steps", "1", "--metric", "loss"],
        ["--steps", "1", "--metric", "loss=high"],
        ["--total", "5"],
        ["checkpoint"],
        ["oldest"],
    ],
)
def test_refuses_wrong_arguments(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2


def test_publishes_a_file(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (directory / "state.bin").write_text("s")
    assert cli.main(["latest"]) == 1
    assert cli.main(["checkpoint", str(directory / "state.bin")]) == 0
    assert cli.main(["latest"]) == 0
    latest = Path(capsys.readouterr().out.strip())
    assert latest == directory / "checkpoints" / "00000001"
    assert (latest / "state.bin").read_text() == "s"


def test_publishes_what_a_directory_holds(directory: Path) -> None:
    state = directory / "state"
    (state / "deep").mkdir(parents=True)
    (state / "deep" / "weights").write_text("w")
    assert cli.main(["checkpoint", str(state)]) == 0
    assert (directory / "checkpoints/00000001/deep/weights").read_text() == "w"


def test_says_why_it_cannot_publish(directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["checkpoint", str(directory / "missing")]) == 1
    assert "missing" in capsys.readouterr().err
    assert cli.main(["latest"]) == 1


def test_a_command_beside_a_task_publishes_nothing_and_reads_what_there_is(
    monkeypatch: pytest.MonkeyPatch, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (directory / "state.bin").write_text("of the task")
    assert cli.main(["checkpoint", str(directory / "state.bin")]) == 0
    monkeypatch.setenv("EVA_EXEC", "a-command")
    (directory / "state.bin").write_text("of the command")
    assert cli.main(["checkpoint", str(directory / "state.bin")]) == 0
    assert eva_iterator.publish(lambda _: pytest.fail("nothing is to be saved")) == 0
    errors = capsys.readouterr().err
    assert errors == (
        "eva-progress: not published: a command beside a task makes no checkpoints of it\n"
    )
    assert cli.main(["latest"]) == 0
    assert [path.name for path in (directory / "checkpoints").iterdir()] == ["00000001"]
    latest = Path(capsys.readouterr().out.strip())
    assert (latest / "state.bin").read_text() == "of the task"
