"""What a hostile file costs before it is refused, counted in steps rather than in seconds."""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable

import pytest
import yaml

from eva_master.adapters.catalog import load_catalog
from eva_master.adapters.resolving.parse import parse_job
from eva_wire.jobfile.reading import MOST_BYTES
from eva_wire.text import yamlevents, yamlfile
from eva_wire.text.cancellation import Cancellation, CancelledError
from eva_wire.values.errors import EvaError, InvalidJob

CATALOG = load_catalog()
HEAD = "name: a\nrun: x\nresources: {cpus: 1, memory: 1GiB}\n"


def error_of(text: str) -> InvalidJob:
    with pytest.raises(InvalidJob) as caught:
        parse_job(text, file_name="job.yaml", owner="ann", catalog=CATALOG, workdir=None)
    return caught.value


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Events that are read, and nodes that values are made of."""
    taken: list[str] = []

    class Counting(yaml.CSafeLoader):
        def get_event(self) -> object:
            taken.append("event")
            return super().get_event()

    count = yamlfile._Builder._count

    def counting(builder: yamlfile._Builder, path: yamlfile.Path) -> None:
        taken.append("node")
        count(builder, path)

    monkeypatch.setattr(yamlevents, "_LOADER", Counting)
    monkeypatch.setattr(yamlfile._Builder, "_count", counting)
    return taken


HOSTILE: dict[str, tuple[str, str]] = {
    "too many entries": (f"a: [{'1,' * 500_000}1]", "more than 100,000 keys"),
    "too many keys": ("".join(f"k{n}: 1\n" for n in range(80_000)), "more than 100,000 keys"),
    "depth of lists": ("[" * 1_000_000, "nested too deeply"),
    "depth of maps": ("{a: " * 200_000, "nested too deeply"),
    "depth of blocks": ("".join(f"{' ' * n}a:\n" for n in range(1_000)), "nested too deeply"),
    "laughs": (
        "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(
            f"{n}: &{n} [{','.join(9 * [f'*{p}'])}]\n"
            for p, n in zip("abcdef", "bcdefg", strict=True)
        ),
        "aliases are followed",
    ),
    "an alias of itself": ("a: &a {b: *a}", "nested too deeply"),
    "size": (f"name: {'x' * MOST_BYTES}", "larger than"),
    "size in bytes": (f"name: {'é' * (MOST_BYTES - 10)}", "larger than"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_work_ends_at_the_limits(name: str, steps: list[str]) -> None:
    text, told = HOSTILE[name]
    error = error_of(text)
    assert any(told in problem.message for problem in error.problems), error.problems
    assert len(steps) < 3 * yamlevents.MOST_NODES


def test_problems_and_suggestions_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    close = difflib.get_close_matches

    def counting(word: str, known: object, **options: object) -> object:
        asked.append(len(word))
        return close(word, known, **options)

    monkeypatch.setattr(yamlfile.difflib, "get_close_matches", counting)
    many = "".join(f"- {{name: t{n}, rum{n}: 1, resorces{n}: 1}}\n" for n in range(5_000))
    error = error_of(f"{HEAD}tasks:\n{many}")
    assert len(error.problems) <= 102
    assert error.problems[-1].message == "and 9,900 more problems"
    families = "".join(
        f"- {{name: u{n}, resources_by_family: {{p{n}: null}}}}\n" for n in range(99)
    )
    error_of(f"{HEAD}tasks:\n{families}")
    error = error_of(f"{HEAD}? {'x' * 100_000}\n: 1\n")
    assert error.problems[0].message.endswith("...'")
    assert len(str(error)) < 300
    assert len(asked) < 400
    assert max(asked) <= 64


def test_variables_are_counted_before_they_are_written_out() -> None:
    variables = ", ".join(f"V{n}: 1" for n in range(1_000))
    tasks = "".join(f"- {{name: t{n}, envs: {{OWN: {n}}}}}\n" for n in range(200))
    error = error_of(f"{HEAD}envs: {{{variables}}}\ntasks:\n{tasks}")
    assert "200,200 environment variables together" in error.problems[0].message


@pytest.mark.parametrize("length", [120_001, 60_001])
def test_a_value_that_no_process_can_be_given_is_refused(length: int) -> None:
    error = error_of(f"{HEAD}envs: {{A: {('é' if length < 100_000 else 'x') * length}}}\n")
    assert "at most 120,000 bytes" in error.problems[0].message
    assert len(str(error)) < 300


def test_an_alias_stands_for_what_its_anchor_named_before_it() -> None:
    text = "a: &x 1\nb: *x\nc: &x {d: 2}\ne: *x\n*x : 3\n"
    with pytest.raises(EvaError, match="a key must be a word"):
        yamlfile.load(text, file_name="f", error=EvaError)
    document = yamlfile.load(text.replace("*x : 3\n", ""), file_name="f", error=EvaError)
    assert document.value == {"a": 1, "b": 1, "c": {"d": 2}, "e": {"d": 2}}
    assert document.marks["e", "d"].line == 3


@pytest.mark.parametrize("text", ["a: *x\n", "a: 1\n---\nb: 1\n", "a: 1\n--- 2\n"])
def test_what_is_more_or_less_than_one_document_is_refused(text: str) -> None:
    with pytest.raises(EvaError, match="not YAML"):
        yamlfile.load(text, file_name="f", error=EvaError)


class _Given(Cancellation):
    """Turned after a number of looks."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.looks = looks

    def check(self) -> None:
        self.looks -= 1
        if self.looks <= 0:
            self.cancel()
        super().check()


def test_work_that_nobody_waits_for_is_given_up_in_every_part() -> None:
    tasks = "".join(f"- {{name: t{n}}}\n" for n in range(4_000))
    text = f"{HEAD}tasks:\n{tasks}"
    whole = _Given(10**9)

    def parse(cancelled: Cancellation) -> None:
        parse_job(
            text,
            file_name="job.yaml",
            owner="ann",
            catalog=CATALOG,
            workdir=None,
            cancelled=cancelled,
        )

    parse(whole)
    looks = 10**9 - whole.looks
    assert looks > 4_000
    for after in (1, 5, 20, looks // 2, looks):
        with pytest.raises(CancelledError):
            parse(_Given(after))


def test_a_cancellation_is_seen_by_other_threads() -> None:
    cancellation, seen = Cancellation(), threading.Event()

    def work(check: Callable[[], None]) -> None:
        try:
            while True:
                check()
        except CancelledError:
            seen.set()

    thread = threading.Thread(target=work, args=(cancellation.check,))
    thread.start()
    cancellation.cancel()
    thread.join()
    assert seen.is_set()
