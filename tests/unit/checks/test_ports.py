"""No port is given to two tests, in whichever process they run."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.rpc import ports

ROOT = Path(__file__).parents[3]
_MANY = """
import json, sys
from tests.fakes.rpc import ports
ports._FIRST, ports._LAST, ports._TRIES = 10_300, 10_340, 100_000
print(json.dumps([ports.free_port() for _ in range(10)]), flush=True)
sys.stdin.read()
"""


def test_two_processes_are_never_given_one_port() -> None:
    """Of 41 ports each of two takes ten, and keeps them though nobody listens there."""
    command = [sys.executable, "-c", _MANY]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with (
        subprocess.Popen(command, cwd=ROOT, **pipes) as one,  # type: ignore[call-overload]
        subprocess.Popen(command, cwd=ROOT, **pipes) as other,  # type: ignore[call-overload]
    ):
        given = [*json.loads(one.stdout.readline()), *json.loads(other.stdout.readline())]
        one.stdin.close()
        other.stdin.close()
    assert len(given) == len(set(given)) == 20


def test_one_process_is_never_given_a_port_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = iter([19_001, 19_001, 19_001, 19_002, 19_002, 19_003, *range(19_004, 19_100)])
    monkeypatch.setattr(random, "randint", lambda *_: next(draws))
    given = [ports.free_port() for _ in range(3)]
    assert len(set(given)) == 3


def test_all_ports_of_tests_are_from_one_place() -> None:
    """A port that the system names at the moment may be somebody else's in the next."""
    own = Path(__file__)
    files = [path for path in (ROOT / "tests").rglob("*.py") if path != own]
    asks = [path for path in files if "def free_port" in path.read_text(encoding="utf-8")]
    assert asks == [ROOT / "tests" / "fakes" / "rpc" / "ports.py"]
