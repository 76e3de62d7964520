"""Finds first words and local names that make text and code hard to read.

A sentence begins with its subject, a noun. A docstring or comment is cut into sentences at full
stops, colons, question marks, empty lines and list marks. A sentence counts if it begins with one
of `FIRST_WORDS`, capital included. Entries of a section such as ``Args:`` count, for their text
follows a colon. A comment of several lines is one text. In pages, code and headings are left out.

A local name is a noun too. An assignment counts if its target is one of `LOCAL_NAMES`: plain and
augmented assignments, loops, comprehensions, ``with`` and ``:=``.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tests.checks.links import lines_outside_fences

FIRST_WORDS = (
    "Who", "Whom", "Whose", "What", "Whoever", "Those", "These", "Such", "It", "The same",
    "Likewise", "Nobody", "Somebody", "Of a", "Nor",
)  # fmt: skip
LOCAL_NAMES = frozenset({"it", "one", "there", "found", "told", "known", "left"})

_FIRST = re.compile(rf"(?<![\w`.])(?:{'|'.join(FIRST_WORDS)})\b(?!`)")
_ENDS = (".", ":", "!", "?", "|")
_MARK = re.compile(r"(?:^|\n) *(?:[-*>]|\d+\.)\Z")
_HEADING = re.compile(r" {0,3}#{1,6} ")


@dataclass(frozen=True, slots=True)
class Place:
    """A word that reads badly, and its place.

    Attributes:
        line: In the file, from 1.
        word: The first word or the name.
        begins: Whether a whole docstring or comment begins with that word.
    """

    line: int
    word: str
    begins: bool = False


def first_words(text: str) -> list[Place]:
    """The sentences of a file's docstrings and comments that begin badly, in order."""
    return sorted(
        (place for line, said in prose(text) for place in sentences(said, line)),
        key=lambda place: place.line,
    )


def sentences(text: str, line: int = 1) -> Iterator[Place]:
    """The sentences of a text that begin badly; `line` is that of its first character."""
    for match in _FIRST.finditer(text):
        before = text[: match.start()].rstrip("\"'*`_( \n")
        gap = text[len(before) : match.start()]
        begins = not before
        if begins or before.endswith(_ENDS) or gap.count("\n") > 1 or _MARK.search(before[-200:]):
            yield Place(line + text.count("\n", 0, match.start()), match[0], begins=begins)


def page_words(text: str) -> list[Place]:
    """The sentences of a Markdown page that begin badly, apart from code and headings."""
    lines = ("" if _HEADING.match(line) else line for line in lines_outside_fences(text))
    return list(sentences("\n".join(lines)))


def local_names(text: str) -> list[Place]:
    """The assignments of a file to names that are no nouns, in order."""
    stores = (
        Place(node.lineno, node.id)
        for node in ast.walk(_parsed(text))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in LOCAL_NAMES
    )
    return sorted(stores, key=lambda place: place.line)


def prose(text: str) -> Iterator[tuple[int, str]]:
    """The docstrings and comments of a file, each with its first line."""
    for node in ast.walk(_parsed(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            said = node.value.value
            if isinstance(said, str):
                bare = said.lstrip()
                yield node.lineno + said[: len(said) - len(bare)].count("\n"), bare
    yield from comments(text)


def comments(text: str) -> Iterator[tuple[int, str]]:
    """The comments of a file; those on lines of their own, one below the other, are one comment."""
    if "#" not in text:
        return
    block: list[str] = []
    start, column = 0, -1
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type != tokenize.COMMENT:
            continue
        row, indent = token.start
        said = token.string.lstrip("#:! ").rstrip()
        own = not token.line[:indent].strip()
        if block and own and column == indent and row == start + len(block):
            block.append(said)
            continue
        if block:
            yield start, "\n".join(block)
        block, start, column = [said], row, indent if own else -1
    if block:
        yield start, "\n".join(block)


def read(path: Path) -> str:
    """The text of a file of the repository."""
    return path.read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)
