"""What tasks, workers and other users wrote does not control the terminal that it is shown on."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
import structlog
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from eva_client.cli import main
from eva_client.cli.views.errors import report
from eva_wire.service import logs
from eva_wire.text.escapes import VisibleBytes, escaped_json, visible
from eva_wire.values.errors import InvalidJob, NotFound, Problem
from tests.fakes.rpc.api import FakeApi, sample_jobs

# The title, the clipboard, a colour, one-character controls, and the same with 8-bit controls.
ATTACKS = (
    "\x1b]0;title\x07",
    "\x1b]52;c;cm0gLXJmIC8=\x1b\\",
    "\x1b[31m",
    "\x1bc",
    "\x08\x08",
    "\x7f",
    "\x9b31m",
    "\x9d0;title\x9c",
    "\u202e",
    "\u2066",
)


def harmless(shown: bytes) -> bool:
    """Whether a terminal shows all of it, but for line ends, returns and tabs."""
    text = shown.decode()
    return all(char in "\n\r\t" or char.isprintable() or char in "\u200b\u200d" for char in text)


def shown(*pieces: bytes) -> bytes:
    out = io.BytesIO()
    writer = VisibleBytes(out)
    for piece in pieces:
        writer.write(piece)
    writer.close()
    return out.getvalue()


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_escape_is_written_out_however_it_arrives(attack: str) -> None:
    data = f"über {attack} 10 %\r20 %\n".encode()
    whole = shown(data)
    assert harmless(whole)
    assert whole.startswith("über ".encode())
    assert whole.endswith(b" 10 %\r20 %\n")
    assert shown(*(data[at : at + 1] for at in range(len(data)))) == whole
    # Eight-bit terminals take bytes that are no UTF-8 for controls.
    assert harmless(shown(b"a\x9b31mb\xff"))


def test_what_is_written_out_can_be_recognised() -> None:
    assert shown(b"\x1b[31m\x7f\x00\xff") == rb"^[[31m^?^@\xff"
    assert shown("\u202e\x9b".encode()) == rb"\u202e\x9b"
    assert shown("ü€\U0001f600".encode()[:-1]) == "ü€".encode() + rb"\xf0\x9f\x98"


@given(st.lists(st.binary(max_size=8)), st.text())
def test_nothing_harmful_gets_out_of_any_bytes(pieces: list[bytes], text: str) -> None:
    out = shown(*pieces)
    assert out == shown(b"".join(pieces))
    assert not {*out.decode()} & {*map(chr, range(9)), *map(chr, range(127, 160)), "\x1b", "\u202e"}
    assert json.loads(escaped_json(json.dumps(text, ensure_ascii=False))) == text


@pytest.fixture
def api() -> FakeApi:
    jobs = sample_jobs()
    attack = "".join(ATTACKS)
    for job in jobs.values():
        job.reason = attack
        for task in job.tasks:
            task.waiting_for = attack
            task.metrics[attack] = 1
    made = FakeApi(jobs=jobs)
    made.explanation.kind = "job"
    made.explanation.job.CopyFrom(jobs["bert-1"])
    return made


def eva(api: FakeApi, *arguments: str) -> bytes:
    """What the command prints on a terminal, both streams together."""
    terminal, its = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "eva_client.cli", *arguments],
        env={**os.environ, **api.environment, "TERM": "dumb", "COLUMNS": "500"},
        stdout=its,
        stderr=its,
    ):
        os.close(its)
        read = bytearray()
        try:
            while piece := os.read(terminal, 4096):
                read += piece
        except OSError:  # The other end is closed.
            pass
    os.close(terminal)
    return bytes(read)


def test_a_terminal_gets_logs_without_escapes_unless_it_asks_for_them(api: FakeApi) -> None:
    said = b"".join(attack.encode() + b"\n" for attack in ATTACKS)
    with api:
        api.logs = [said[at : at + 3] for at in range(0, len(said), 3)]
        on_terminal = eva(api, "logs", "bert")
        raw = eva(api, "logs", "--raw", "bert")
    assert harmless(on_terminal)
    assert b"^[]0;title^G" in on_terminal
    assert raw == said.replace(b"\n", b"\r\n")


def test_a_pipe_gets_the_bytes_unless_it_is_told_otherwise(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with api:
        api.be_the_only_one(monkeypatch, tmp_path)
        api.logs = [b"\x1b[31mred"]
        assert CliRunner().invoke(main, ["logs", "bert"]).stdout_bytes == b"\x1b[31mred"
        told = CliRunner().invoke(main, ["logs", "--no-raw", "bert"])
        assert told.stdout_bytes == b"^[[31mred"


@pytest.mark.parametrize("command", [["ls"], ["status"], ["explain"], ["ls", "--json"]])
def test_reasons_are_shown_without_escapes(
    api: FakeApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: list[str]
) -> None:
    with api:
        api.be_the_only_one(monkeypatch, tmp_path)
        more = [] if "ls" in command else ["bert"]
        result = CliRunner().invoke(main, [*command, *more])
    assert harmless(result.stdout_bytes), result.stdout_bytes


def test_errors_are_shown_without_escapes(capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    attack = "".join(ATTACKS)
    problems = (Problem(attack, attack, hint=attack), Problem(attack))
    report(NotFound(attack, hint=attack))
    report(InvalidJob(attack, problems=problems))
    report(InvalidJob(attack, problems=problems[:1]))
    assert harmless(capsysbinary.readouterr().err)


def test_the_log_on_a_terminal_is_without_escapes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    attack = "".join(ATTACKS)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    try:
        logs.configure(cluster="test")
        try:
            raise ValueError(attack)
        except ValueError:
            structlog.get_logger().exception(attack, reason=attack, more=[attack])
    finally:
        structlog.reset_defaults()
        structlog.contextvars.clear_contextvars()
    said = capsys.readouterr().err
    assert "ValueError" in said
    # The log's own colours are the only escapes.
    assert not any(piece in said for piece in ATTACKS if piece != "\x1b[31m")


def test_ordinary_text_stays_as_it_is() -> None:
    text = "über\t€ \U0001f600 \u200d line\r\nnext"
    assert visible(text) == text
