"""Refuses more bad first words and local names than there were.

``ceilings.txt`` has the most that there may be, one count a line. ``python -m tests.checks
--write`` lowers the counts and never raises one. Two changes that both lower a count merge by
keeping both of their lines (``.gitattributes``), of which the least holds. A count below the file's
is no fault, so that a change may leave the file alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from tests.checks import words
from tests.checks.sources import PRODUCT, markdown_files, python_files

FILE = "tests/checks/ceilings.txt"
ELSEWHERE = ("benchmarks", "deploy", "examples", "tests")
_HEAD = """\
# The most that there may be of each. Never raise a number: `python -m tests.checks --words FILE...`
# shows the places in some files, `python -m tests.checks --write` lowers the numbers.
"""


def faults(root: Path) -> Iterator[str]:
    """One line per count of a repository that has risen."""
    counts = counted(root)
    for name, most in stored(root).items():
        if counts[name] > most:
            yield (
                f"{name}: {counts[name]}, at most {most} ({FILE}); "
                "`python -m tests.checks --words FILE...` shows those of the files that you changed"
            )


def counted(root: Path) -> dict[str, int]:
    """The number of each in a repository."""
    counts: Counter[str] = Counter()
    for area, folders in (("product", PRODUCT), ("elsewhere", ELSEWHERE)):
        for name in ("texts that begin badly", "sentences that begin badly", "local names"):
            counts[f"{area}, {name}"] = 0
        for path in python_files(root, folders):
            text = words.read(path)
            firsts = words.first_words(text)
            counts[f"{area}, texts that begin badly"] += sum(place.begins for place in firsts)
            counts[f"{area}, sentences that begin badly"] += len(firsts)
            counts[f"{area}, local names"] += len(words.local_names(text))
    counts["pages, sentences that begin badly"] = sum(
        len(words.page_words(words.read(page))) for page in markdown_files(root)
    )
    return dict(counts)


def stored(root: Path) -> dict[str, int]:
    """The most that there may be of each, by the file; the least of several lines holds."""
    most: dict[str, int] = {}
    for line in words.read(root / FILE).splitlines():
        if line and not line.startswith("#"):
            number, _, name = line.partition(" ")
            most[name] = min(int(number), most.get(name, int(number)))
    return most


def lower(root: Path) -> None:
    """Write the counts of a repository into the file, where they are below what it says."""
    most = stored(root) if (root / FILE).exists() else {}
    counts = counted(root)
    lowered = {name: min(count, most.get(name, count)) for name, count in counts.items()}
    (root / FILE).write_text(_HEAD + _lines(lowered), encoding="utf-8")


def places(root: Path, paths: Iterable[str]) -> Iterator[str]:
    """One line per bad word in some files, each a path below the root."""
    for name in paths:
        path = root / name
        text = words.read(path)
        if path.suffix == ".md":
            bad = words.page_words(text)
        else:
            bad = [*words.first_words(text), *words.local_names(text)]
        for place in sorted(bad, key=lambda place: place.line):
            yield f"{name}:{place.line}: {place.word}"


def _lines(counts: Mapping[str, int]) -> str:
    return "".join(f"{count} {name}\n" for name, count in counts.items())
