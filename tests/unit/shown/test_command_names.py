"""Commands of other tools, slips of the pen, and standard output that cannot be written."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from itertools import chain
from pathlib import Path
from unittest.mock import create_autospec

import click
import pytest
from click.testing import CliRunner

from eva_client.cli import main
from eva_client.cli.other_names import OTHER_NAMES
from eva_client.cli.output import failing_output
from eva_client.cli.run import _Run
from eva_client.rpc.master import Client
from tests.fakes.rpc.api import FakeApi, sample_bill, sample_jobs, sample_state


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("ps", "`eva ls` lists jobs"),
        ("queue", "`eva ls`"),
        ("log", "`eva logs JOB`"),
        ("ssh", "`eva exec JOB`"),
        ("stop", "`eva suspend JOB`"),
        ("down", "`eva teardown`"),
        ("launch", "`eva submit FILE`"),
        ("sbatch", "`eva submit FILE`"),
        ("srun", "`eva run -- COMMAND`"),
        ("sinfo", "`eva nodes`"),
        ("lss", "did you mean `eva ls`?"),
        ("statsu", "did you mean `eva status`"),
        ("sim", "did you mean `eva simulate`?"),
    ],
)
def test_other_names_lead_to_the_command(word: str, told: str) -> None:
    result = CliRunner().invoke(main, [word, "x"])
    assert result.exit_code == 2
    assert f"Eva has no command {word!r}: " in result.stderr
    assert told in result.stderr


def test_no_command_of_eva_is_taken_for_one_of_another_tool() -> None:
    commands = {*main.list_commands(click.Context(main))}
    assert {"submit", "demo", "worker"} <= commands
    assert sorted(commands.intersection(chain.from_iterable(OTHER_NAMES.values()))) == []


def test_a_word_that_is_like_nothing_is_only_refused() -> None:
    result = CliRunner().invoke(main, ["xyzzy"])
    assert result.exit_code == 2
    assert "Eva has no command 'xyzzy'\n" in result.stderr


def _run(*arguments: str, out: int, env: dict[str, str]) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "eva_client.cli", *arguments],
        env={**os.environ, **env},
        stdout=out,
        stderr=subprocess.PIPE,
        check=False,
    )
    return done.returncode, done.stderr.decode()


FULL = Path("/dev/full")


@pytest.mark.skipif(not FULL.exists(), reason="no device that is always full")
@pytest.mark.parametrize("command", ["ls --help", "cost --json", "logs bert"])
def test_a_full_disk_is_one_line_and_an_exit_code(command: str) -> None:
    with FakeApi(jobs=sample_jobs(), state=sample_state(), bill=sample_bill()) as api:
        api.logs = [b"x" * 100_000]
        with FULL.open("wb") as full:
            code, told = _run(*command.split(), out=full.fileno(), env=api.environment)
    assert (code, told) == (1, f"error: standard output: {os.strerror(errno.ENOSPC)}\n")


def test_a_reader_that_is_gone_is_no_error() -> None:
    read, write = os.pipe()
    os.close(read)
    code, told = _run("schema", out=write, env={})
    os.close(write)
    assert (code, told) == (1, "")


@pytest.mark.parametrize(
    ("closed", "written"),
    [("<&-", True), (">&-", False), ("2>&-", True), ("<&- >&- 2>&-", False)],
)
@pytest.mark.parametrize("command", ["ls", "logs bert"])
def test_closed_streams_are_empty_ones(command: str, closed: str, written: bool) -> None:
    with FakeApi(jobs=sample_jobs(), state=sample_state(), bill=sample_bill()) as api:
        api.logs = [b"line\n"]
        line = f'exec "$0" -m eva_client.cli {command} {closed}'
        done = subprocess.run(
            ["sh", "-c", line, sys.executable],
            env={**os.environ, **api.environment},
            capture_output=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, b"")
    assert bool(done.stdout) == written


def test_a_run_whose_reader_is_gone_says_that_its_job_runs_on(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unread(_: _Run) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    monkeypatch.setattr(_Run, "_to_its_end", unread)
    with pytest.raises(BrokenPipeError):
        _Run(create_autospec(Client), "run-1").follow()
    assert "run-1 runs on; `eva logs -f run-1` shows the rest" in capsys.readouterr().err


def test_another_file_that_is_full_is_not_taken_for_standard_output() -> None:
    with pytest.raises(OSError, match="other file"), failing_output():
        raise OSError(errno.ENOSPC, "other file")
