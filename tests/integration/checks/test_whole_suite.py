"""All tests: two parts side by side, both shown, and either's failure is everybody's."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from functools import partial
from itertools import combinations
from pathlib import Path

import pytest

from tests.__main__ import LISTS, Part, closing_line, failed_tests, files_of, parts, run
from tests.fakes.patience import DEADLINE_S

ROOT = Path(__file__).parents[3]
MARKERS = ("root", "long", "waits", "drawn")


def part(name: str, text: str, code: int = 0, fine: tuple[int, ...] = ()) -> Part:
    """A part that says something and ends with a code."""
    program = f"import sys; print({text!r}); sys.exit({code})"
    return Part(name, (sys.executable, "-c", program), fine)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [(0, 0, 0), (0, 5, 0), (1, 0, 1), (0, 1, 1), (5, 5, 1), (-9, 0, 1), (0, 2, 1)],
)
def test_it_fails_if_either_part_does(first: int, second: int, expected: int) -> None:
    """Code 5: there is nothing that waits, for lack of containers."""
    out = io.BytesIO()
    shown = part("one", "=== 3 passed in 0.10s ===", first)
    aside = part("two", "=== 4 passed, 1 warning in 0.20s ===", second, fine=(5,))
    assert run(shown, aside, out) == expected


def test_both_closing_lines_are_shown_and_repeated_at_the_end() -> None:
    out = io.BytesIO()
    shown = part("one", "first\n\x1b[31m== \x1b[1m1 failed\x1b[0m, 3 passed in 0.10s ==\x1b[0m", 1)
    run(shown, part("two", "second\n===== 4 passed in 61.20s (0:01:01) ====="), out)
    text = out.getvalue().decode()
    assert text.index("first") < text.index("second")
    assert text.splitlines()[-2:] == [
        "one: 1 failed, 3 passed in 0.10s (exit code 1)",
        "two: 4 passed in 61.20s (0:01:01)",
    ]
    assert len(re.findall("4 passed in 61.20s", text)) == 2


def test_what_failed_is_told_last() -> None:
    """Who sees the end of a long log alone sees what to do about it."""
    out = io.BytesIO()
    lines = "ERROR a.py::test_a - OSError: it is gone\nFAILED a.py::test_b - assert 0\n"
    shown = part("one", f"== short test summary ==\n{lines}== 1 failed, 1 error in 0.10s ==", 1)
    run(shown, part("two", "FAILED and fine\n== 4 passed in 61.20s =="), out)
    assert out.getvalue().decode().splitlines()[-4:] == [
        "one: 1 failed, 1 error in 0.10s (exit code 1)",
        "  ERROR a.py::test_a - OSError: it is gone",
        "  FAILED a.py::test_b - assert 0",
        "two: 4 passed in 61.20s",
    ]
    many = b"".join(b"FAILED %d %s\n" % (n, b"x" * 5000) for n in range(1000))
    assert [line.split()[1] for line in failed_tests(many)] == [str(n) for n in range(980, 1000)]
    assert sum(map(len, failed_tests(many))) <= 8000


PYTEST = (sys.executable, "-m", "pytest", "--color=yes", "-p", "no:cacheprovider", "test_it.py")


def test_closing_lines_of_a_real_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_a(): pass\ndef test_b(): assert 0\n")
    for more, said in (
        ([], r"1 failed, 1 passed in [\d.]+s"),
        (["-q"], r"1 failed, 1 passed in [\d.]+s"),
        (["-k", "test_a"], r"1 passed, 1 deselected in [\d.]+s"),
        (["-k", "nothing"], r"2 deselected in [\d.]+s"),
    ):
        done = subprocess.run([*PYTEST, *more], cwd=tmp_path, stdout=subprocess.PIPE, check=False)
        assert re.fullmatch(said, closing_line(done.stdout)), done.stdout.decode()
    assert closing_line(b"killed\n") == "no closing line"


def test_what_failed_in_a_real_pytest(tmp_path: Path) -> None:
    fixture = "import pytest\n@pytest.fixture\ndef it():\n    yield\n    raise OSError('gone')\n"
    tests = "def test_a(it): pass\ndef test_b(): assert 0\n"
    (tmp_path / "test_it.py").write_text(fixture + tests)
    done = subprocess.run(PYTEST, cwd=tmp_path, stdout=subprocess.PIPE, check=False)
    assert sorted(failed_tests(done.stdout)) == [
        "ERROR test_it.py::test_a - OSError: gone",
        "FAILED test_it.py::test_b - assert 0",
    ]


def test_tests_are_compiled_once_whatever_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (tmp_path / "test_fine.py").write_text("def test_a(): assert True\n")
    files_of("", tmp_path)
    (made,) = tmp_path.glob("__pycache__/test_fine.*-pytest-*.pyc")
    before = made.stat()
    files_of("", tmp_path)
    assert made.stat() == before
    (tmp_path / "test_broken.py").write_text("def test_b(: assert True\n")
    files_of("", tmp_path)  # It is the workers' to complain.
    (tmp_path / "test_fine.py").write_text("def test_a(): assert 1 + 1 == 2\n")
    files_of("", tmp_path)
    assert made.stat().st_mtime_ns > before.st_mtime_ns


def test_workers_are_given_the_files_of_their_list(tmp_path: Path) -> None:
    """Among them those that cannot be imported, which a worker has to tell."""
    marked = "import pytest\n@pytest.mark.{}\ndef test_a(): pass\n"
    for name, text in (
        ("test_plain.py", "def test_a(): pass\n"),
        ("test_long one.py", marked.format("long")),
        ("test_root.py", marked.format("root")),
        ("test_drawn.py", marked.format("drawn")),
    ):
        (tmp_path / name).write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers =\n    long\n    root\n    drawn\n")

    def names(which: str) -> list[str]:
        return [Path(file).name for file in files_of(which, tmp_path)]

    assert names("") == names("all") == []
    assert names("long") == ["test_drawn.py", "test_long one.py"]
    assert names("root") == ["test_root.py"]
    (tmp_path / "test_broken.py").write_text("def test_b(: pass\n")
    assert "test_broken.py" in names("long")
    assert names("root")[-1] == "test_root.py"


def test_parts_without_and_with_files() -> None:
    """Tests that wait are in one folder; without any of a list's there, none is found."""
    unit, whole = "tests/unit/test_a.py", "tests/e2e/test_b.py"
    for part, expected in zip(
        (*parts(""), *parts("all"), *parts("long", [whole, unit]), *parts("root", [unit])),
        ([], ["tests/e2e"], [], ["tests/e2e"], [whole, unit], [whole], [unit], ["tests/e2e"]),
        strict=True,
    ):
        assert [it for it in part.command if it.startswith("tests/")] == expected


def lists() -> dict[str, Callable[[Collection[str]], bool]]:
    """The lists of tests that `make test`, `make long` and `make root` run: whether by its markers.

    The second part of each command looks for tests from end to end alone.
    """
    names = [which for which in LISTS if which != "all"]
    return {f"{which or 'test'}: {name}": it for which in names for name, it in chosen(which)}


def chosen(which: str) -> Iterator[tuple[str, Callable[[Collection[str]], bool]]]:
    """The parts of a list: whether a test is in them, by its markers."""
    for part in parts(which):
        expression = part.command[part.command.index("-m", 2) + 1]
        yield part.name, partial(_chosen, expression)


def _chosen(expression: str, markers: Collection[str]) -> bool:
    return bool(eval(expression, {}, {name: name in markers for name in MARKERS}))


def test_every_combination_of_markers_is_in_one_list_and_drawn_tests_among_the_long_too() -> None:
    for count in range(len(MARKERS) + 1):
        for markers in combinations(MARKERS, count):
            first, *more = [name for name, chooses in lists().items() if chooses(markers)]
            assert first.startswith("root") == ("root" in markers)
            again = "drawn" in markers and first.startswith("test")
            assert more == ([first.replace("test:", "long:")] if again else [])


def test_every_test_without_root_is_in_one_part_of_the_list_of_all_these() -> None:
    for count in range(len(MARKERS) + 1):
        for markers in combinations(MARKERS, count):
            (first, *_) = [name for name, chooses in lists().items() if chooses(markers)]
            which, _, part = first.partition(": ")
            found = [name for name, chooses in chosen("all") if chooses(markers)]
            assert found == ([] if which == "root" else [part])


_LISTING = """
import json, os
def pytest_collection_finish(session):
    found = {
        it.nodeid: [*(mark.name for mark in it.iter_markers()), *map("@{}".format, it.fixturenames)]
        for it in session.items
    }
    with open(os.environ["LISTED"], "w") as file:
        json.dump(found, file)
"""


def collected(tmp_path: Path, *arguments: str) -> dict[str, set[str]]:
    """The tests that a pytest of its own collects, with their markers and @fixtures.

    None is left out for what this machine lacks.
    """
    (tmp_path / "listing.py").write_text(_LISTING)
    insisting = ("TORCH", "GPU", "GPU_DOCKER", "DOCKER", "DATA", "ROOT")
    environment = {
        **os.environ,
        **{f"EVA_REQUIRE_{what}": "1" for what in insisting},
        "PYTHONPATH": os.pathsep.join((str(tmp_path), str(ROOT))),
        "LISTED": str(tmp_path / "listed.json"),
    }
    command = [*PYTEST[:3], "-p", "no:cacheprovider", "-p", "listing", "--collect-only", "-qq"]
    done = subprocess.run(
        [*command, *arguments], cwd=ROOT, env=environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout.decode()[-3000:]
    listed: dict[str, list[str]] = json.loads((tmp_path / "listed.json").read_text())
    return {test: set(markers) for test, markers in listed.items()}


_OF_ROOT = {"root", "docker", "gpu_docker", "hosts", "@docker_engine", "@make_hosts"}


@pytest.mark.long
def test_every_test_runs_as_the_user_or_as_root(tmp_path: Path) -> None:
    """A test that needs an engine or namespaces needs root, whether it says so or not."""
    found = collected(tmp_path, "tests")
    assert len(found) > 5_000
    of_root = 0
    for test, markers in found.items():
        first, *more = [name for name, chooses in lists().items() if chooses(markers)]
        assert not more or "drawn" in markers, test
        assert "waits" not in markers or test.startswith("tests/e2e/"), test
        needs_root = bool(_OF_ROOT & markers)
        assert first.startswith("root") == needs_root, test
        of_root += needs_root
    assert 100 < of_root < len(found) / 2


@pytest.mark.parametrize(
    ("expression", "of_root"), [("root and not waits", True), ("not root and not waits", False)]
)
def test_what_an_engine_is_needed_for_is_chosen_as_a_test_of_root(
    expression: str, of_root: bool, tmp_path: Path
) -> None:
    found = collected(tmp_path, "-m", expression, "tests/conformance/test_runtimes.py")
    assert found
    assert {"docker" in markers for markers in found.values()} == {of_root}


_WAITING = """
import signal, sys, time
from pathlib import Path
from tests.__main__ import Part, run
part = '''
import signal, sys, time
from pathlib import Path
try:
    Path(sys.argv[1]).touch()
    time.sleep(1000)
except KeyboardInterrupt:
    print("cleared up")
    sys.exit(2)
'''
files = sys.argv[1:]
sys.exit(run(*(Part(it, (sys.executable, "-c", part, it)) for it in files), sys.stdout.buffer))
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_both_and_lets_them_clear_up(number: signal.Signals, tmp_path: Path) -> None:
    files = [tmp_path / "one", tmp_path / "two"]
    with subprocess.Popen(
        [sys.executable, "-c", _WAITING, *map(str, files)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        start_new_session=True,
        # Whatever those who run these tests ignore.
        preexec_fn=lambda: [  # noqa: PLW1509
            signal.signal(it, signal.SIG_DFL) for it in (signal.SIGHUP, signal.SIGINT)
        ],
    ) as running:
        deadline = time.monotonic() + DEADLINE_S
        while not all(file.exists() for file in files) and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(running.pid, number)
        said, _ = running.communicate(timeout=DEADLINE_S)
    assert running.returncode == 130
    assert said.count(b"cleared up") == 2
