"""Scalars of job files: the types of texts and figures, each with its check."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import PurePosixPath
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BeforeValidator,
    Field,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from eva_wire.jobfile import outputs
from eva_wire.text.quantities import Duration, parse_duration, write_duration
from eva_wire.text.yamlfile import Document, Path
from eva_wire.values.bounds import LEAST_SPAN_MS, MOST_STATED
from eva_wire.values.errors import Problem

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://\S+")
# The grammar of references: [REGISTRY/]PATH[:TAG][@DIGEST].
_PART = r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*"
_IMAGE = re.compile(
    r"(?:[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*(?::[0-9]+)?/)?"
    rf"{_PART}(?:/{_PART})*(?::\w[\w.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?",
    re.ASCII,
)
_BUILT_BY_EVA = "eva-build"
"""Repository of images that jobs have built (eva_worker/runtime/docker/images/dockerfile.py)."""
_MOMENT = TypeAdapter(AwareDatetime)
_DAY = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[T ]+([0-9]{2}:[0-9]{2}(?::[0-9]{2})?))?")
_ZONE = re.compile(r"\s*[A-Za-z]+(?:/[A-Za-z_]+)+|\s+[A-Z]{2,5}$|[+-][0-9]{1,2}$")
_EXAMPLE = "2030-01-31T18:00:00Z"
_LAST_SECOND = 253_402_300_800
_COLONS = 2
_SURROGATE = re.compile("[\ud800-\udfff]")
"""Bytes of a command line or of the environment that are no text, as Python has them."""
_CODE = re.compile(r"[0-9]{1,3}", re.ASCII)
_LAST_CODE = 255
_DAY_MS = 86_400_000
_LONGEST_MS = 3_660 * _DAY_MS
MOST_SCRIPT = 524_288
"""Bytes of a task's script."""
MOST_ENVIRONMENT = 1_572_864
"""Bytes of a task's variables. For these, those of the cluster, and all arguments of a program the
kernel has a quarter of its stack: 2 MiB of the usual 8 MiB."""
_MOST_VARIABLES = 100_000
"""Environment variables of all different tasks of a job together."""
ROOM_OF_VARIABLE = 10
"""Bytes of a variable besides its name and value: the sign between them, a zero, a pointer."""
_LONGEST_FIRST_LINE = 255
"""Bytes that the kernel reads of the line that names an interpreter."""
_LONGEST_VALUE = 120_000
_LONGEST_VARIABLE = 200
_RESERVED = frozenset(
    {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"}
    # Variables by which the members of a gang find each other.
    | {"MASTER_ADDR", "MASTER_PORT", "NODE_RANK", "NNODES"}
)


def refusal(message: str, hint: str = "") -> PydanticCustomError:
    """Make the error of a validator, with a hint for the user."""
    # As a parameter, since pydantic would take braces in a message for parameters of its own.
    return PydanticCustomError("refused", "{message}", {"message": message, "hint": hint})


def check_name(name: str) -> str:
    """Check the name of a job, task or input, which becomes part of ids, paths and URLs.

    Raises:
        ValueError: The name is not allowed.
    """
    if not _NAME.fullmatch(name):
        raise refusal(
            f"{name!r} cannot be a name",
            "use up to 63 letters, digits, '.', '_' and '-', starting with a letter or digit",
        )
    return name


def _check_reference(text: str) -> str:
    if not _REFERENCE.fullmatch(text):
        raise refusal(f"{text[:80]!r} cannot be a job", "write the id or the name of a job")
    return text


def check_variable(name: str) -> str:
    """Check the name of an environment variable of a task.

    Raises:
        ValueError: The name is not allowed or reserved for the cluster.
    """
    if name == "<<":
        hint = "write its entries out"
        raise refusal("merge keys are no part of YAML 1.2, which job files are written in", hint)
    if not _VARIABLE.fullmatch(name) or len(name) > _LONGEST_VARIABLE:
        raise refusal(
            f"{name[:80]!r} cannot be an environment variable", "use letters, digits and '_'"
        )
    if name.startswith("EVA_") or name in _RESERVED:
        raise refusal(f"{name} is set by the cluster", "choose another name")
    return name


def check_text(text: str) -> str:
    """Check text that is passed to a process as an argument or variable.

    Raises:
        ValueError: The text holds a NUL character, or bytes that are no text.
    """
    if "\0" in text:
        raise refusal("must not hold a NUL character")
    if not text.isascii() and _SURROGATE.search(text):
        raise refusal("must be text in UTF-8")
    return text


def check_value(text: str) -> str:
    """Check the value of an environment variable, which the kernel keeps below 128 KiB.

    Raises:
        ValueError: The value is longer, or holds a NUL character.
    """
    if len(text) > _LONGEST_VALUE or size_of(text) > _LONGEST_VALUE:
        raise refusal(
            f"must be at most {_LONGEST_VALUE:,} bytes long",
            "put it into a file of the working directory",
        )
    return check_text(text)


@lru_cache(maxsize=16)  # Thousands of tasks may refer to one long script.
def check_script(text: str) -> str:
    """Check a task's script; lines that end as on Windows end with a line feed alone then.

    Raises:
        ValueError: The script is too long, holds a NUL character, or its first line begins as one
            that names an interpreter and names none.
    """
    if (size := size_of(text)) > MOST_SCRIPT:
        raise refusal(
            f"must be at most {MOST_SCRIPT:,} bytes long, and has {size:,}",
            "put it into a file of the working directory: `workdir: .`, `run: bash FILE`",
        )
    if "\r\n" in check_text(text):
        text = text.replace("\r\n", "\n")
    if text.startswith("#!"):
        _check_first_line(text.partition("\n")[0])
    return text


def _check_first_line(line: str) -> None:
    program = line[2:].strip(" \t").partition(" ")[0].partition("\t")[0]
    hint = "write `#!/bin/bash` or `#!/usr/bin/env bash`; without such a line it is for bash"
    if not program:
        raise refusal("its first line begins with `#!` and names no program", hint)
    if not program.startswith("/"):
        raise refusal(f"its first line names {program[:80]!r}, which is no absolute path", hint)
    if not line.replace("\t", " ").isprintable():
        raise refusal("its first line must be printable text", hint)
    if size_of(line) > _LONGEST_FIRST_LINE:
        raise refusal(f"its first line is longer than {_LONGEST_FIRST_LINE} bytes", hint)


def _check_label(text: str) -> str:
    if not text.isprintable():
        raise refusal("must be one line of printable text")
    return text


def _check_url(text: str) -> str:
    if not _URL.fullmatch(text):
        hint = "write s3://bucket/path, file:///path or job:JOB/outputs"
        raise refusal(f"{text!r} is not a URL", hint)
    return text


def _check_input(text: str) -> str:
    try:
        of_job = outputs.Reference.of(text)
    except ValueError as error:
        raise refusal(str(error)) from None
    return _check_url(text) if of_job is None else text


def _check_image(text: str) -> str:
    if not _IMAGE.fullmatch(text):
        raise refusal(f"{text!r} is not an image", "write repo/name:tag; the name in lower case")
    if re.split("[:@]", text.rpartition("/")[2])[0] == _BUILT_BY_EVA:
        raise refusal(
            f"{text!r} is the name of what Eva builds for jobs",
            "name an image of a registry, or have the job build its own with `build`",
        )
    return text


def _check_dockerfile(text: str) -> str:
    path = PurePosixPath(text)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise refusal("must be a path inside the build context", "write Dockerfile")
    return str(path)


def _moment(told: Any) -> Any:
    """Read a time with its zone."""
    try:
        moment = _MOMENT.validate_python(told if isinstance(told, str) else None)
    except ValidationError:
        raise _no_moment(told) from None
    if not 0 <= moment.timestamp() < _LAST_SECOND:
        shown = repr(str(told)[:80])
        raise refusal(f"{shown} is not between 1970 and 9999, in UTC", f"write {_EXAMPLE}")
    return moment


def _no_moment(told: Any) -> PydanticCustomError:
    """The error of a deadline, with how it is to be written."""
    shown = repr(str(told)[:80])
    if isinstance(told, int | float) and not isinstance(told, bool):
        hint = f"write {_EXAMPLE}"
        if 0 < told < _LAST_SECOND:
            hint = f"write {datetime.fromtimestamp(told, UTC):%Y-%m-%dT%H:%M:%SZ}"
        return refusal(f"{shown} is no time with a date", hint)
    text = str(told).strip()
    try:
        parse_duration(text)
    except ValueError:
        pass
    else:
        return refusal(
            f"{shown} is a duration, not a time", f"write `deadline: {{within: {text}}}`"
        )
    day = _DAY.match(text)
    if not day:
        return refusal(f"{shown} is no time", f"write {_EXAMPLE}, or {{within: 36h}}")
    zone = _ZONE.search(text, day.end())
    clock = day[2] or "00:00"
    clock = clock if clock.count(":") == _COLONS else f"{clock}:00"
    if zone:
        named = f"{zone[0].strip()!r} is no zone that is known here"
        return refusal(named, f"write the offset: {day[1]}T{clock}+01:00")
    if not _is_time(f"{day[1]}T{clock}"):
        return refusal(f"{shown} is no time", f"write {_EXAMPLE}")
    return refusal(
        f"{shown} has no zone", f"write {day[1]}T{clock}Z, or an offset such as +01:00 for Z"
    )


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _check_long(duration_ms: int) -> int:
    if not 0 < duration_ms <= _LONGEST_MS:
        raise refusal("must be more than zero and at most ten years")
    return duration_ms


def check_wait(duration_ms: int) -> int:
    """Check a time for which a job waits at most, which may be none."""
    if duration_ms > _LONGEST_MS:
        raise refusal("must be at most ten years")
    return duration_ms


def check_max_cost(amount: int) -> int:
    """Check the most that a job may cost, in micro-dollars."""
    if amount <= 0:
        raise refusal("a job that may cost nothing never runs", "write `max_cost: $5`")
    if amount > MOST_STATED:
        raise refusal("a job costs at most $1,000,000", "leave `max_cost` out for no limit")
    return amount


def check_worth(amount: int) -> int:
    """Check what a job is said to be worth, in micro-dollars."""
    if amount > MOST_STATED:
        raise refusal("a job is worth at most $1,000,000", "write `worth: $1000000`")
    return amount


def check_loss(per_hour: int) -> int:
    """Check what a job is said to lose, in micro-dollars per hour."""
    if per_hour > MOST_STATED:
        raise refusal("a job loses at most $1,000,000 per hour", "write `loses: $1000000/h`")
    return per_hour


def check_half_life(duration_ms: int) -> int:
    """Check the time in which the worth of a job is said to halve."""
    if duration_ms < LEAST_SPAN_MS:
        raise refusal("what a job is worth halves in one second at the least", "write `halves: 1s`")
    return duration_ms


def _check_short(duration_ms: int) -> int:
    if duration_ms > _DAY_MS:
        raise refusal("must be at most one day")
    return duration_ms


def _exit_codes(entries: Any) -> Any:
    """The codes that a list names, each once; `3-5` stands for all from 3 to 5."""
    if not isinstance(entries, list):
        return entries  # The type is complained about.
    codes: set[int] = set()
    for entry in entries:
        first, _, last = str(entry).partition("-")
        bounds = [int(bound) if _CODE.fullmatch(bound) else 0 for bound in (first, last or first)]
        if isinstance(entry, bool) or not 1 <= bounds[0] <= bounds[1] <= _LAST_CODE:
            raise refusal(
                f"{str(entry)[:80]!r} is no exit code",
                f"write codes from 1 to {_LAST_CODE}, or ranges of them such as 64-78",
            )
        codes.update(range(bounds[0], bounds[1] + 1))
    return sorted(codes)


def grace_problems(document: Document, grace_ms: int, allowed_ms: int) -> Iterator[Problem]:
    """A complaint if operators allow no grace period that is as long."""
    if grace_ms > allowed_ms:
        yield document.problem(
            ("grace_period",),
            f"the grace period is {write_duration(grace_ms)}, and at most "
            f"{write_duration(allowed_ms)} is allowed (limits.grace_period)",
            "let the program store checkpoints while it runs, or have an operator raise the limit",
        )


def environment_problems(
    document: Document,
    common: Mapping[str, str],
    tasks: Sequence[tuple[Path, Mapping[str, str]]],
    envs: Mapping[str, str],
    row_bytes: int = 0,
) -> Iterator[Problem]:
    """Problems with variables of tasks that are too large, before the tasks are made.

    Args:
        document: The job file.
        common: The variables of all tasks.
        tasks: Where each different task stands, and its own.
        envs: Variables that override the file's.
        row_bytes: Bytes of the variables that a task has of a table, at most.
    """
    total = sum(len(common) + len(own) + len(envs) for _, own in tasks)
    if total > _MOST_VARIABLES:
        yield document.problem(
            ("envs",),
            f"the tasks have {total:,} environment variables together, at most {_MOST_VARIABLES:,}"
            " are allowed",
            "put what all tasks read into a file of the working directory",
        )
        return
    sizes: dict[str, int] = {}
    for path, own in tasks:
        variables = {**common, **own, **envs}
        size = sum(_known_size(text, sizes) for pair in variables.items() for text in pair)
        size += row_bytes + ROOM_OF_VARIABLE * len(variables)
        if size > MOST_ENVIRONMENT:
            where: Path = (*path, "envs") if own else ("envs",)
            yield document.problem(
                where,
                f"the variables of a task take {size:,} bytes (names, values, and"
                f" {ROOM_OF_VARIABLE} for each), at most {MOST_ENVIRONMENT:,} are allowed",
                "put large values into files of the working directory",
            )


def _known_size(text: str, sizes: dict[str, int]) -> int:
    """The size of a text, measured once however often a file refers to it."""
    if text not in sizes:
        sizes[text] = size_of(text)
    return sizes[text]


def size_of(text: str) -> int:
    """Bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


Name = Annotated[str, AfterValidator(check_name)]
Reference = Annotated[str, AfterValidator(_check_reference)]
Variable = Annotated[str, AfterValidator(check_variable)]
Text = Annotated[str, AfterValidator(check_text)]
Value = Annotated[
    str,
    AfterValidator(check_value),
    # Numbers are kept as they are written; one without a value has that of the caller.
    WithJsonSchema({"type": ["string", "number", "boolean", "null"]}),
]
Command = Annotated[
    str,
    Field(min_length=1, json_schema_extra={"maxLength": MOST_SCRIPT}),
    AfterValidator(check_script),
]
Label = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_check_label)]
Input = Annotated[str, AfterValidator(_check_input)]
Image = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_check_image)]
Directory = Annotated[str, Field(min_length=1), AfterValidator(check_text)]
Dockerfile = Annotated[str, AfterValidator(check_text), AfterValidator(_check_dockerfile)]
Rate = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False, strict=True)]
Moment = Annotated[datetime, BeforeValidator(_moment)]
Count = Annotated[int, Field(strict=True)]
Members = Annotated[int, Field(ge=1, le=1_000)]
PositiveDuration = Annotated[Duration, AfterValidator(_check_long)]
ShortDuration = Annotated[Duration, AfterValidator(_check_short)]
ExitCodes = Annotated[
    list[int],
    BeforeValidator(_exit_codes),
    Field(max_length=_LAST_CODE),
    WithJsonSchema(
        {
            "type": "array",
            "maxItems": _LAST_CODE,
            "items": {
                "anyOf": [
                    {"type": "integer", "minimum": 1, "maximum": _LAST_CODE},
                    {"type": "string", "pattern": "^[0-9]{1,3}-[0-9]{1,3}$"},
                ]
            },
        }
    ),
]
