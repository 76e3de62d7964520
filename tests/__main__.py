"""Runs the tests: those that compute, and beside them those that mostly wait.

Tests that take long are left out, unless they alone are asked for (`--long`). So are two of three
examples of property tests with many, all of which are drawn there. Both lists are run as one, in
which each example is tried once, by `--all`. Tests that need root are left out of all these,
unless they alone are asked for, long or not (`--root`).

The output of the former is shown as it comes, that of the latter when they are over. Each part ends
with pytest's closing line, and both lines are repeated at the end, with the tests that failed.

Bytecode is kept, whatever the environment says: a dozen workers would compile every test, and
hundreds of masters and agents all of Eva.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from tests.drawing import FEWER_EXAMPLES

_NOTHING_COLLECTED = 5
_CLOSING = re.compile(r"^=* ?((?:\d+ \w+|no tests ran)\b.* in [\d.]+s\b.*?) ?=*$", re.MULTILINE)
_FAILED = re.compile(r"^(?:FAILED|ERROR) .*$", re.MULTILINE)
_MOST_FAILED = 20
_LONGEST_REASON = 400
_TAIL = 1 << 16
_FORMATS = re.compile(r"\x1b\[[\d;]*m")
_COLLECTED = re.compile(r"^(\S.*\.py): \d+$", re.MULTILINE)
_PYTEST = (sys.executable, "-m", "pytest")
_COLLECT = (*_PYTEST, "--collect-only", "-qq", "-p", "no:cacheprovider")
_END_TO_END = "tests/e2e"
_TESTS = Path(__file__).parent
_NO_BYTECODE = "PYTHONDONTWRITEBYTECODE"

LISTS = {
    "": "not root and not long",
    "long": "not root and (long or drawn)",
    "all": "not root",
    "root": "root",
}
"""By name, the markers of the tests that run together; the first list has no option."""
_OF_NEARLY_ALL_FILES = ("", "all")


@dataclass(frozen=True)
class Part:
    """Some of the tests.

    Attributes:
        name: Of what these tests do.
        command: Runs them.
        fine: Exit codes, beside 0, that are no failure.
    """

    name: str
    command: tuple[str, ...]
    fine: tuple[int, ...] = ()


def parts(which: str, files: Sequence[str] = (), colour: bool = False) -> tuple[Part, Part]:
    """The tests of a list. Several run at once; of those that only wait, more.

    Args:
        which: The name of the list, a key of `LISTS`.
        files: Those with such tests; empty for all files.
        colour: Whether the first part's output is to have colours.
    """
    # Tests that take long wait for longer, and few of them compute.
    beside = "5" if which in ("long", "all") else "3"
    chosen = f"{LISTS[which]} and not waits"
    main = ("-m", chosen, "--durations=30", "-n", "4", "--dist", "worksteal", *files)
    shown = ("--color=yes",) if colour else ()
    waits = (
        "-m",
        f"{LISTS[which]} and waits",
        "-n",
        beside,
        "--dist",
        "load",
        "--maxschedchunk",
        "1",
        *([file for file in files if file.startswith(_END_TO_END)] or [_END_TO_END]),
    )
    own = ("-p", "no:cacheprovider")  # What failed last is the other part's to remember.
    return (
        Part("tests that compute", (*_PYTEST, *main, *shown)),
        # Without containers there are none of these.
        Part("tests that wait", (*_PYTEST, *waits, *own), fine=(_NOTHING_COLLECTED,)),
    )


def files_of(which: str, tests: Path = _TESTS) -> list[str]:
    """The files with tests of a list; what is not compiled is compiled on the way, once.

    Workers that start together would each compile it all, and each collect every file for the few
    tests that take long or need root. Of files that cannot be imported the workers will complain.

    Args:
        which: The name of the list, a key of `LISTS`. Where nearly all files have tests of it,
            those not compiled are collected, and no files are named.
        tests: Where the files are.
    """
    named = which not in _OF_NEARLY_ALL_FILES
    files = [file for file in sorted(tests.rglob("test_*.py")) if named or not _compiled(file)]
    names = [os.path.relpath(file) for file in files]
    shares = min(len(names), os.cpu_count() or 1)
    running = [
        subprocess.Popen(
            [*_COLLECT, "-m", LISTS[which], *names[n::shares]],
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for n in range(shares)
    ]
    found: set[str] = set()
    for n, process in enumerate(running):
        said = process.communicate()[0].decode(errors="replace")
        whole = process.returncode in (0, _NOTHING_COLLECTED)
        found.update(_COLLECTED.findall(said) if whole else names[n::shares])
    return sorted(found) if named else []


def _compiled(test: Path) -> bool:
    """Whether there is bytecode with the assertions as pytest writes them."""
    made = (test.parent / "__pycache__").glob(
        f"{test.stem}.{sys.implementation.cache_tag}-pytest-*"
    )
    return any(it.suffix == ".pyc" and it.stat().st_mtime > test.stat().st_mtime for it in made)


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != _NO_BYTECODE}


def run(shown: Part, aside: Part, out: IO[bytes]) -> int:
    """Run two parts side by side.

    Ctrl-C, SIGTERM and a terminal that closes are handed on to both, which then clear up. At a
    second time both are killed.

    Args:
        shown: Its output is shown as it comes.
        aside: Its output is shown when both are over.
        out: Where to.

    Returns:
        0 if both succeeded, 1 if not, 130 if they were stopped.
    """
    with tempfile.NamedTemporaryFile(prefix="eva-tests-", suffix=".log") as log:
        _write(out, f"The output of the {aside.name} is in {log.name}, and here at the end.\n")
        beside = _start(aside, log)
        first = _start(shown, subprocess.PIPE)
        with _stopping(first, beside) as stopped:
            tail = _copied(first, out)
            codes = (first.wait(), beside.wait())
        _write(out, f"\n{f' {aside.name} ':=^80}\n")
        said = Path(log.name).read_bytes()
        out.write(said)
    _write(out, f"\n{' all tests ':=^80}\n")
    failed = False
    for part, code, text in ((shown, codes[0], tail), (aside, codes[1], said[-_TAIL:])):
        fine = code == 0 or code in part.fine
        failed |= not fine
        _write(out, f"{part.name}: {closing_line(text)}{'' if fine else f' (exit code {code})'}\n")
        if not fine:
            _write(out, "".join(f"  {line}\n" for line in failed_tests(text)))
    if stopped():
        return 130
    return int(failed)


def closing_line(output: bytes) -> str:
    """What pytest says at its end, such as ``3 passed in 0.12s``."""
    found: list[str] = _CLOSING.findall(_FORMATS.sub("", output.decode(errors="replace")))
    return found[-1] if found else "no closing line"


def failed_tests(output: bytes) -> list[str]:
    """The last tests of those that pytest says failed, with its reasons, shortened."""
    found: list[str] = _FAILED.findall(_FORMATS.sub("", output.decode(errors="replace")))
    return [line[:_LONGEST_REASON] for line in found[-_MOST_FAILED:]]


def _start(part: Part, output: IO[bytes] | int) -> subprocess.Popen[bytes]:
    # In sessions of their own, so that they hear of Ctrl-C once, and of closed terminals from here.
    return subprocess.Popen(
        part.command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=_environment(),
        start_new_session=True,
    )


def _copied(process: subprocess.Popen[bytes], out: IO[bytes]) -> bytes:
    """Show what a process writes until its end; returns the last of it."""
    assert process.stdout
    tail = b""
    while piece := os.read(process.stdout.fileno(), _TAIL):
        out.write(piece)
        out.flush()
        tail = (tail + piece)[-_TAIL:]
    return tail


@contextlib.contextmanager
def _stopping(*processes: subprocess.Popen[bytes]) -> Iterator[Callable[[], bool]]:
    """Hand signals on to groups of processes; yields what tells whether there was one."""
    asked = threading.Event()

    def stop(_number: int, _frame: FrameType | None) -> None:
        to_send = signal.SIGKILL if asked.is_set() else signal.SIGINT
        asked.set()
        for process in processes:
            # Its group lives as long as one of its tests' processes does.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, to_send)

    handled = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # As it is under nohup.
        handled.append(signal.SIGHUP)
    before = {number: signal.signal(number, stop) for number in handled}
    try:
        yield asked.is_set
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _write(out: IO[bytes], text: str) -> None:
    out.write(text.encode())
    out.flush()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests", description=__doc__)
    group = parser.add_mutually_exclusive_group()
    for name, told in (
        ("long", "run what takes long, and nothing else"),
        ("all", "run these too, and each example once"),
        ("root", "run what needs root, and nothing else"),
    ):
        group.add_argument(f"--{name}", dest="which", action="store_const", const=name, help=told)
    which = parser.parse_args().which or ""
    if which == "root" and os.geteuid() != 0:
        parser.error("only root can run the tests that need root")
    if not which:
        os.environ[FEWER_EXAMPLES] = "1"
    shown = parts(which, files_of(which), sys.stdout.isatty())
    sys.exit(run(*shown, sys.stdout.buffer))
