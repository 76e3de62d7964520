"""Shared by all readers: reads files, and reports problems by row and field."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic_core import ErrorDetails

from eva_wire.text.unreadable import why_unreadable
from eva_wire.text.yamlfile import dotted, invalid, wording
from eva_wire.values.errors import InvalidTrace, Problem

_MOST_BYTES = 2 << 30
"""Size of a file as it is when it is unpacked."""
_MOST_PROBLEMS = 20
"""Number of problems shown: a file of the wrong kind has one in each row."""


def plain_suffix(path: Path) -> str:
    """The end of a file's name, in lower case and without ``.gz``."""
    name = path.name.lower().removesuffix(".gz")
    return Path(name).suffix


def read_text(path: Path) -> str:
    """Read a text file, which may be compressed with gzip and begin with a byte order mark.

    Raises:
        InvalidTrace: The file cannot be read, is damaged or too large, or is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if packed else path.open("rb") as content:
            data = content.read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise refusal(path, [Problem(f"it is larger than {_MOST_BYTES >> 30} GiB")])
        return data.decode("utf-8-sig")
    except (EOFError, zlib.error) as error:
        raise refusal(path, [Problem(f"it is damaged: {error}")]) from error
    except (OSError, UnicodeDecodeError) as error:
        raise refusal(path, [Problem(why_unreadable(error))]) from error


def read_json(path: Path) -> Any:
    """Read a JSON file in which no key may stand twice.

    Raises:
        InvalidTrace: The file cannot be read, is not JSON, or has a key twice.
    """
    return parse_json(read_text(path), path)


def parse_json(text: str, path: Path, *, first_line: int = 1) -> Any:
    """Read JSON in which no key may stand twice.

    Args:
        text: The JSON text.
        path: The file, for messages.
        first_line: The text's first line in the file.

    Raises:
        InvalidTrace: The text is not JSON, or has a key twice.
    """
    try:
        return json.loads(text, object_pairs_hook=_without_repetition)
    except json.JSONDecodeError as error:
        line = error.lineno + first_line - 1
        problem = Problem(f"this is not JSON: {error.msg}", "", line, error.colno)
    except _RepeatedError as error:
        problem = Problem(f"the key {error.key!r} stands twice")
    except ValueError:
        problem = Problem("a number in it has more digits than can be read")
    except RecursionError:
        problem = Problem("it is nested too deeply")
    raise invalid(InvalidTrace, str(path), [problem])


def refusal(path: Path, problems: Iterable[Problem]) -> InvalidTrace:
    """Make the error of a file with its first problems."""
    listed = list(problems)
    kept = listed[:_MOST_PROBLEMS]
    if len(listed) > len(kept):
        kept.append(Problem(f"and {len(listed) - len(kept):,} more", line=kept[-1].line))
    return invalid(InvalidTrace, str(path), kept)


def row_problem(details: ErrorDetails, row: str) -> Problem:
    """Convert pydantic's error for a field of a row to a problem.

    Args:
        details: Located in a mapping of rows: the first part is the row's key.
        row: Name of a row, such as ``job``.
    """
    name, *field = details["loc"] or ("",)
    where = dotted(tuple(field))
    match details["type"]:
        case "missing":
            message = "is missing"
        case "extra_forbidden":
            message = "is no field of this format"
        case _:
            message = wording(details)
    return Problem(message, f"{row} {name}: {where}" if where else f"{row} {name}")


class _RepeatedError(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _RepeatedError(key)
            seen.add(key)
    return value
