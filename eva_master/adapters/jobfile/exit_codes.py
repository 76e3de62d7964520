"""Exit codes in job files: `retry_on` and `fail_on`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from eva_master.adapters.text.yamlfile import Document
from eva_master.model.errors import Problem
from eva_master.model.job import ASKS_FOR_RETRY

_CODE = re.compile(r"[0-9]{1,3}", re.ASCII)
_LAST = 255


def refusal(message: str, hint: str = "") -> PydanticCustomError:
    """Make the error of a validator, with a hint for the user."""
    # As a parameter, since pydantic would take braces in a message for parameters of its own.
    return PydanticCustomError("refused", "{message}", {"message": message, "hint": hint})


def _exit_codes(entries: Any) -> Any:
    """The codes that a list names, each once; `3-5` stands for all from 3 to 5."""
    if not isinstance(entries, list):
        return entries  # The type is complained about.
    codes: set[int] = set()
    for entry in entries:
        first, _, last = str(entry).partition("-")
        bounds = [int(it) if _CODE.fullmatch(it) else 0 for it in (first, last or first)]
        if isinstance(entry, bool) or not 1 <= bounds[0] <= bounds[1] <= _LAST:
            raise refusal(
                f"{str(entry)[:80]!r} is no exit code",
                f"write codes from 1 to {_LAST}, or ranges of them such as 64-78",
            )
        codes.update(range(bounds[0], bounds[1] + 1))
    return sorted(codes)


ExitCodes = Annotated[
    list[int],
    BeforeValidator(_exit_codes),
    Field(max_length=_LAST),
    WithJsonSchema(
        {
            "type": "array",
            "maxItems": _LAST,
            "items": {
                "anyOf": [
                    {"type": "integer", "minimum": 1, "maximum": _LAST},
                    {"type": "string", "pattern": "^[0-9]{1,3}-[0-9]{1,3}$"},
                ]
            },
        }
    ),
]


def problems(
    document: Document, retry_on: Collection[int], fail_on: Collection[int], retries: int
) -> Iterator[Problem]:
    """Complain about codes of which a job file says two things that exclude each other."""
    if retry_on and not retries:
        message = "with `retries: 0` nothing is retried, whatever the exit code"
        yield document.problem(("retry_on",), message, "write `retries: 1` or more, or remove it")
    if both := sorted(set(retry_on) & set(fail_on)):
        message = f"{', '.join(map(str, both))} is in `retry_on` as well"
        yield document.problem(("fail_on",), message, "leave it in one of the two")
    if ASKS_FOR_RETRY in fail_on:
        message = f"a program that exits with {ASKS_FOR_RETRY} asks to be retried"
        yield document.problem(("fail_on",), message, "leave it out, and use another code")
