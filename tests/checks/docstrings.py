"""Refuses public docstrings that are too short to say anything.

A public docstring has at least five words. One short form is allowed: a method that implements a
protocol, or overrides a method, may refer to the docstring that it shares, as in "See
`Policy.plan`.". The class that is named must be one of these packages, and have a method of the
same name whose own docstring is long enough; or it must be a base of the method's class.

Public are modules, and classes, functions and methods whose name, and whose class's and module's
names, do not begin with an underscore.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.checks.sources import python_files

FOLDERS = (
    "eva_lab",
    "eva_master",
    "eva_worker",
    "iterator_sdk",
    "benchmarks",
    "examples",
    "deploy",
)
SHORTEST = 5
"""Words that a public docstring has at least."""

_REFERENCE = re.compile(r"See `(?:\w+\.)*(\w+)\.(\w+)`\.")


@dataclass(frozen=True, slots=True)
class Documented:
    """A public definition and its docstring.

    Attributes:
        path: Its file.
        line: Of the definition.
        owner: Name of the class that it is a method of, else empty.
        bases: Names of that class's bases.
        name: Its own name; empty for a module.
        text: The docstring.
    """

    path: Path
    line: int
    owner: str
    bases: frozenset[str]
    name: str
    text: str

    @property
    def long_enough(self) -> bool:
        """Whether the docstring has the number of words that it must have."""
        return sum(any(map(str.isalnum, word)) for word in self.text.split()) >= SHORTEST


def faults(root: Path) -> Iterator[str]:
    """One line per docstring that is too short, in a repository."""
    found = [item for path in python_files(root, FOLDERS) for item in documented(path)]
    for item in too_short(found):
        shown = ".".join(filter(None, (item.owner, item.name))) or "the module"
        yield (
            f"{item.path.relative_to(root)}:{item.line}: the docstring of {shown} has fewer than "
            f"{SHORTEST} words: {item.text!r}"
        )


def too_short(found: list[Documented]) -> Iterator[Documented]:
    """Those docstrings that are neither long enough nor a reference to one that is."""
    methods: dict[tuple[str, str], bool] = {}
    for item in found:
        key = (item.owner, item.name)
        methods[key] = methods.get(key, False) or item.long_enough
    for item in found:
        if not item.long_enough and not _refers(item, methods):
            yield item


def _refers(item: Documented, methods: Mapping[tuple[str, str], bool]) -> bool:
    match = _REFERENCE.fullmatch(item.text.strip())
    if match is None or not item.owner or match[2] != item.name or match[1] == item.owner:
        return False
    return methods.get((match[1], match[2]), False) or match[1] in item.bases


def documented(path: Path) -> Iterator[Documented]:
    """The public definitions of a file that have a docstring."""
    if path.stem.startswith("_") and not path.stem.startswith("__"):
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    if (text := ast.get_docstring(tree)) is not None:
        yield Documented(path, 1, "", frozenset(), "", text)
    yield from _definitions(path, tree.body, "", frozenset())


def _definitions(
    path: Path, body: list[ast.stmt], owner: str, bases: frozenset[str]
) -> Iterator[Documented]:
    for node in body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if node.name.startswith("_"):
            continue
        if (text := ast.get_docstring(node)) is not None:
            yield Documented(path, node.lineno, owner, bases, node.name, text)
        if isinstance(node, ast.ClassDef):
            names = frozenset(filter(None, map(_base_name, node.bases)))
            yield from _definitions(path, node.body, node.name, names)


def _base_name(base: ast.expr) -> str:
    """The last part of a base's name: ``Generic`` of ``typing.Generic[T]``."""
    if isinstance(base, ast.Subscript):
        return _base_name(base.value)
    if isinstance(base, ast.Attribute):
        return base.attr
    return base.id if isinstance(base, ast.Name) else ""
