"""Environment variables of options and files: ``--env`` and ``--env-file``."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from eva_wire.values.errors import InvalidJob, of_file

_MOST_BYTES = 1024 * 1024
"""Size of the largest file of variables."""


class Environment(NamedTuple):
    """Variables for a job.

    Attributes:
        values: By name.
        unwritten: Names of those that stand in no command line: the caller's own, or of a file.
    """

    values: dict[str, str]
    unwritten: Sequence[str]


def environment_of(variables: Iterable[str], files: Iterable[Path]) -> Environment:
    """Read variables; those of options come before those of files, and later before earlier ones.

    Args:
        variables: ``NAME=VALUE``, or ``NAME`` for the value that it has here.
        files: Files of variables.

    Raises:
        InvalidJob: A variable is not of that form, or a value is missing here.
        EvaError: A file cannot be read.
    """
    values: dict[str, str] = {}
    unwritten: dict[str, None] = {}
    for file in files:
        for line, text in _lines(file):
            name, value = _variable(text, f"{file}:{line}")
            values[name], unwritten[name] = _unquoted(value), None
    for text in variables:
        name, value = _variable(text, "--env")
        values[name] = value
        if "=" in text:
            unwritten.pop(name, None)
        else:
            unwritten[name] = None
    return Environment(values, [*unwritten])


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that state variables, with their numbers."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as failure:
        raise of_file(failure) from failure
    if len(data) > _MOST_BYTES:
        raise InvalidJob(f"{path} has more than {_MOST_BYTES:,} bytes", hint="it is no such file")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        raise InvalidJob(f"{path} is not a text file", hint="save it as UTF-8") from failure
    for number, line in enumerate(text.splitlines(), 1):
        stated = line.strip().removeprefix("export ").lstrip()
        if stated and not stated.startswith("#"):
            yield number, stated


def _variable(text: str, where: str) -> tuple[str, str]:
    """The name and value that a text states."""
    name, equals, value = text.partition("=")
    name = name if not equals else name.rstrip()
    if not name or " " in name:
        raise InvalidJob(f"{where}: {text[:80]!r} is not NAME=VALUE")
    if equals:
        return name, value
    if name not in os.environ:
        raise InvalidJob(
            f"{where}: {name} takes your variable {name}, which is not set",
            hint=f"export it, or write {name}=VALUE",
        )
    return name, os.environ[name]


def _unquoted(value: str) -> str:
    """A value without the quotes around all of it."""
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value
