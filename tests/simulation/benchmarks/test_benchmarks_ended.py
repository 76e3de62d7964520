"""Benchmarks that are ended by SIGTERM leave no process behind."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchmarks.harness import ROOT
from tests.fakes.patience import DEADLINE_S


def below(program: int, word: str) -> list[psutil.Process]:
    """The processes that a program has started, once a word is in the arguments of one."""
    end = time.monotonic() + DEADLINE_S
    while time.monotonic() < end:
        started = psutil.Process(program).children(recursive=True)
        for process in started:
            try:
                if word in process.cmdline():
                    return started
            except psutil.NoSuchProcess:
                continue
        time.sleep(0.05)
    raise AssertionError(f"no process with {word} was started")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["benchmarks.pictures", "--settle", "1000", "--to", "pictures"], "--join"),
        (["benchmarks.attach", "--seconds", "1000"], "up"),
        (["benchmarks", "submission"], "benchmarks.standing_master"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_sigterm_ends_a_benchmark_with_all_that_it_has_started(
    arguments: list[str], word: str, tmp_path: Path
) -> None:
    arguments = [str(tmp_path / each) if each == "pictures" else each for each in arguments]
    program = subprocess.Popen(
        [sys.executable, "-m", *arguments], cwd=ROOT, stdout=subprocess.DEVNULL
    )
    started: list[psutil.Process] = []
    try:
        started = below(program.pid, word)
        program.terminate()
        assert program.wait(DEADLINE_S) == 128 + signal.SIGTERM
        # Python's own helpers of forking notice a moment later.
        _, left = psutil.wait_procs(started, timeout=DEADLINE_S)
        assert not left
    finally:
        program.kill()
        program.wait()
        for process in started:
            if process.is_running():
                process.kill()
