"""Reads YAML files of users, so that every error message has a line and a suggestion.

Scalars are those of YAML 1.2. In YAML 1.1 ``no`` is false, ``1:30`` is ninety and ``1e-3`` is a
string, which users do not expect.
"""

from __future__ import annotations

import difflib
import math
import pathlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from pydantic_core.core_schema import ErrorType

from eva_wire.text import yamlevents
from eva_wire.text.cancellation import NEVER_CANCELLED, Cancellation
from eva_wire.text.unreadable import text_of
from eva_wire.values.errors import EvaError, InvalidConfig, Problem

Path = tuple[str | int, ...]
Failure = TypeVar("Failure", bound=EvaError)

_INTEGER = re.compile(r"[-+]?[0-9]{1,30}")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_WORDS: Mapping[str, bool | float | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", "+.inf", ".Inf", ".INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}
_MOST_BYTES = 16 * 1024 * 1024
_NODES_BETWEEN_LOOKS = 1_000
_TAGS = "tag:yaml.org,2002:"
_MOST_PROBLEMS = 100
"""Problems of a file that are told; the rest is counted."""
_LONGEST_GUESS = 64
"""Words that are longer are no slip of the pen: nothing is suggested for them."""
_LONGEST_SHOWN = 100
_LIKELY = 0.74
"""How alike two words are, of which one is taken for a slip of the other."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a file, counted from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Document:
    """The content of a YAML file with the position of each key.

    Attributes:
        value: The top-level mapping; an empty file is an empty one.
        marks: Key path to the place of the key, or of the entry in a list.
    """

    value: dict[str, Any]
    marks: Mapping[Path, Mark] = field(default_factory=dict)

    def problem(self, path: Path, message: str, hint: str = "") -> Problem:
        """Make a problem for the value at `path`, or else its nearest parent in the file."""
        here = next(
            (self.marks[path[:n]] for n in range(len(path), 0, -1) if path[:n] in self.marks), None
        )
        line, column = (here.line, here.column) if here else (0, 0)
        return Problem(message, dotted(path), line, column, hint)

    def at(self, path: Path) -> Any:
        """The value at a path, which is in the file; `None` if that is empty."""
        value: Any = self.value
        for part in path:
            inside = isinstance(value, dict | list)
            value = value[part] if inside else None
        return value

    def path_of(self, location: Path) -> Path:
        """The part of a pydantic error's location that is in the file.

        Pydantic puts the names of union members and validators between the keys.
        """
        path: Path = ()
        for part in location:
            if (*path, part) in self.marks:
                path = (*path, part)
        return path


def dotted(path: Path) -> str:
    """Write a key path as users read it: ``tasks[1].resources.cpus``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def read(file: pathlib.Path) -> Document:
    """Read a YAML mapping of a user's file; raises `InvalidConfig`."""
    return load(text_of(file), file_name=str(file), error=InvalidConfig)


def load(
    text: str,
    *,
    file_name: str,
    error: type[EvaError],
    text_under: frozenset[str] = frozenset(),
    most_bytes: int = _MOST_BYTES,
    cancelled: Cancellation = NEVER_CANCELLED,
) -> Document:
    """Read a YAML mapping.

    Args:
        text: The file's content.
        file_name: For the error message.
        error: Error to raise.
        text_under: Keys whose mappings keep their scalars as they are written: an environment
            variable ``0.10`` is not ``0.1``.
        most_bytes: Size of the largest file that is looked at.
        cancelled: Looked at now and then.

    Raises:
        CancelledError: The caller has gone away.
        EvaError: Of the type `error`: it is not YAML, no mapping, or has a key twice.
    """
    if len(text) > most_bytes or len(text.encode(errors="replace")) > most_bytes:
        raise invalid(error, file_name, [Problem(f"the file is larger than {most_bytes:,} bytes")])
    builder = _Builder(text_under, cancelled)
    try:
        value = builder.document(yamlevents.read(text, cancelled))
    except yamlevents.TooMuchError as failure:
        builder.problems.append(Problem(f"the file is {failure}"))
    except UnicodeEncodeError:
        builder.problems.append(Problem("this is not Unicode text"))
    except yaml.YAMLError as failure:
        builder.problems.append(_syntax_problem(failure))
    else:
        if not isinstance(value, dict):
            builder.problems.append(
                Problem("the file must hold keys and values", hint="start with `name: ...`")
            )
    if builder.problems:
        raise invalid(error, file_name, builder.problems)
    assert isinstance(value, dict)
    return Document(value, builder.marks)


def invalid(error: type[Failure], file_name: str, problems: Iterable[Problem]) -> Failure:
    """Make the error with all problems of a file, in the file's order."""
    ordered = tuple(sorted(dict.fromkeys(problems), key=lambda one: (one.line, one.column)))
    if len(ordered) > _MOST_PROBLEMS:
        rest = Problem(f"and {len(ordered) - _MOST_PROBLEMS:,} more problems")
        ordered = (*ordered[:_MOST_PROBLEMS], rest)
    if len(ordered) == 1:
        return error(f"{file_name}:{in_words(ordered[0])}", problems=ordered)
    return error(f"{file_name} has {len(ordered)} problems", problems=ordered)


def in_words(problem: Problem) -> str:
    """Write a problem in one line, after the name of its file and a colon."""
    where = f"{problem.line}:{problem.column}: " if problem.line else " "
    key = shortened(problem.key)
    return f"{where}{key}: {problem.message}" if key else where + problem.message


def problems_of(
    failure: ValidationError,
    document: Document,
    model: type[BaseModel],
    advice: Callable[[Path], str] = lambda _: "",
) -> list[Problem]:
    """Convert pydantic's errors to problems of the file; the first ones have hints.

    Args:
        failure: The errors.
        document: The file.
        model: Describes the file.
        advice: Tells of a key that is not known what to write instead; empty if nothing is known.
    """
    errors = failure.errors(include_url=False, include_input=False)
    listed: set[Path] = set()
    problems = []
    for at, details in enumerate(errors):
        if details["type"] == "extra_forbidden":
            path = document.path_of(details["loc"])
            hint = _key_hint(model, path, advice, listed) if at < _MOST_PROBLEMS else ""
            message = f"unknown key {shortened(str(path[-1]))!r}"
            problems.append(document.problem(path, message, hint))
        else:
            problems.append(_problem_of(details, document))
    return problems


def _key_hint(
    model: type[BaseModel], path: Path, advice: Callable[[Path], str], listed: set[Path]
) -> str:
    """Advice on what to write instead of an unknown key. The known keys are listed once."""
    keys = sorted(_keys_at(model, path[:-1]))
    # Keys of other tools are no slips, however much they are like one of ours.
    if hint := advice(path) or suggestion(str(path[-1]), keys):
        return hint
    where = tuple(part for part in path[:-1] if isinstance(part, str))
    if where in listed:
        return ""
    listed.add(where)
    return f"known keys: {', '.join(keys)}"


def shortened(text: str) -> str:
    """A word of a user's file, cut to what fits into a message."""
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


@lru_cache(maxsize=1_000)
def _closest(word: str, known: tuple[str, ...]) -> str:
    close = difflib.get_close_matches(word, known, n=3, cutoff=0.6)
    near = difflib.get_close_matches(word, known, n=1, cutoff=_LIKELY)
    return next((candidate for candidate in close if _is_slip(word, candidate)), "".join(near))


def _is_slip(word: str, meant: str) -> bool:
    """Whether a word differs by one letter, or by two that changed places."""
    if len(word) == len(meant):
        other = [at for at, (a, b) in enumerate(zip(word, meant, strict=True)) if a != b]
        swapped = len(other) == 2 and sorted(word) == sorted(meant) and other[1] == other[0] + 1
        return len(other) == 1 or swapped
    longer, shorter = (word, meant) if len(word) > len(meant) else (meant, word)
    return len(longer) == len(shorter) + 1 and any(
        longer[:at] + longer[at + 1 :] == shorter for at in range(len(longer))
    )


def suggestion(word: str, known: Sequence[str]) -> str:
    """Suggest what `word` was meant to be; empty without a guess."""
    close = "" if len(word) > _LONGEST_GUESS else _closest(word, tuple(known))
    return f"did you mean {close!r}?" if close else ""


class _Builder:
    """Makes values of events and remembers their positions."""

    def __init__(self, text_under: frozenset[str], cancelled: Cancellation) -> None:
        self.marks: dict[Path, Mark] = {}
        self.problems: list[Problem] = []
        self._text_under = text_under
        self._cancelled = cancelled
        self._events = yamlevents.Events()
        self._nodes = 0

    def document(self, events: yamlevents.Events) -> Any:
        self._events = events
        return self._build(0, ()) if events.list else {}

    def _build(self, place: int, path: Path, *, as_text: bool = False) -> Any:
        self._count(path)
        event = self._node(place)
        tag = event.tag if hasattr(event, "tag") else None
        if tag not in (None, "!") and (not tag.startswith(_TAGS) or ":python/" in tag):
            self._complain(event, path, f"unknown tag {shortened(tag)}")
        match event:
            case yaml.MappingStartEvent():
                return dict(self._entries(self._inside(place), path))
            case yaml.SequenceStartEvent():
                items = []
                for index, (child, mark) in enumerate(self._children(self._inside(place))):
                    self.marks[(*path, index)] = mark
                    items.append(self._build(child, (*path, index)))
                return items
        text = self._checked_text(event, path)
        return _scalar(text, event.style, as_text=as_text)

    def _count(self, path: Path) -> None:
        self._nodes += 1
        if self._nodes % _NODES_BETWEEN_LOOKS == 0:
            self._cancelled.check()
        if self._nodes > yamlevents.MOST_NODES:
            raise yamlevents.TooMuchError("too large once its aliases are followed")
        if len(path) > yamlevents.MOST_DEPTH:
            raise yamlevents.TooMuchError("nested too deeply")

    def _start(self, place: int) -> int:
        """The place where a node begins; an alias stands for the node that it names."""
        return self._events.aliases.get(place, place)

    def _node(self, place: int) -> Any:
        return self._events.list[self._start(place)]

    def _inside(self, place: int) -> int:
        return self._start(place) + 1

    def _children(self, first: int) -> Iterator[tuple[int, Mark]]:
        """The places of the nodes from `first` on, up to the end of what they are in."""
        while (after := self._events.after.get(first)) is not None:
            yield first, _mark(self._events.list[first])
            first = after

    def _complain(self, event: Any, path: Path, message: str) -> None:
        mark = _mark(event)
        self.problems.append(Problem(message, dotted(path), mark.line, mark.column))

    def _checked_text(self, event: Any, path: Path) -> str:
        # "\\ud800" is valid YAML, but half a character that UTF-8 cannot encode.
        text: str = event.value
        if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
            self._complain(event, path, "this is not Unicode text")
            return text.encode(errors="replace").decode()
        return text

    def _entries(self, first: int, path: Path) -> Iterator[tuple[str, Any]]:
        as_text = bool(path) and path[-1] in self._text_under
        seen: set[str] = set()
        children = self._children(first)
        for place, mark in children:
            self._count(path)
            child, _ = next(children)
            event = self._node(place)
            if not isinstance(event, yaml.ScalarEvent):
                self._complain(event, path, "a key must be a word")
                continue
            key = self._checked_text(event, path)
            if key in seen:
                self._complain(self._events.list[place], (*path, key), "the key stands twice")
            seen.add(key)
            self.marks[(*path, key)] = mark
            yield key, self._build(child, (*path, key), as_text=as_text)


def _mark(event: Any) -> Mark:
    return Mark(event.start_mark.line + 1, event.start_mark.column + 1)


def _scalar(text: str, style: str | None, *, as_text: bool) -> Any:
    if style or (as_text and _WORDS.get(text, True) is not None):
        return text
    return scalar(text)


def scalar(text: str) -> Any:
    """The value that a word without quotes has in a file."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def _syntax_problem(failure: yaml.YAMLError) -> Problem:
    mark = getattr(failure, "problem_mark", None)
    what = getattr(failure, "problem", None) or str(failure)
    context = getattr(failure, "context", None)
    what_and_context = f"{context} {what}"
    message = f"this is not YAML: {f'{context}, ' if context else ''}{what}"
    hint = next((hint for said, hint in _SYNTAX_HINTS.items() if said in what_and_context), "")
    if mark is None:
        return Problem(message, hint=hint)
    return Problem(message, "", mark.line + 1, mark.column + 1, hint)


_SYNTAX_HINTS = {
    "mapping values are not allowed": "quote a value that has a colon and a blank in it, or write "
    "it on lines of its own below the key, indented: `run: |`",
    "a tab character": "indent with blanks, not with tabs",
    "cannot start any token": "quote a value that begins with @, %, ` or a tab",
    "undefined alias": "quote a value that begins with *",
    "while scanning an alias": "quote a value that begins with *",
    "while scanning an anchor": "quote a value that begins with &",
}


def _problem_of(details: ErrorDetails, document: Document) -> Problem:
    location = details["loc"]
    path = document.path_of(location)
    if details["type"] == "missing":
        missing = (*path, location[-1])
        return document.problem(missing, f"{location[-1]!r} is missing")
    hint = str(details.get("ctx", {}).get("hint", ""))
    return document.problem(
        path, wording(details), hint or _rewritten(details["type"], document.at(path))
    )


def _rewritten(kind: str, value: Any) -> str:
    """How a value of the wrong type is to be written; empty if that is not clear."""
    plain = isinstance(value, int | float | str) and len(str(value)) <= _LONGEST_SHOWN
    if kind == "string_type" and value is None:
        return 'write "" if it is to be empty'
    if kind == "string_type" and plain:
        written = str(value).lower() if isinstance(value, bool) else value
        return f'quote it: "{written}"'
    if kind in ("list_type", "tuple_type") and plain:
        return f"write [{value}]"
    if kind in _NUMBER_TYPES and isinstance(value, str):
        number = scalar(value.strip())
        if isinstance(number, int | float) and not isinstance(number, bool):
            return f"write {value.strip()}, without quotes"
    if kind in ("bool_type", "bool_parsing") and str(value).lower() in _TRUTHS:
        return f"write {_TRUTHS[str(value).lower()]}"
    return ""


def wording(details: ErrorDetails) -> str:
    """Word pydantic's error for a user."""
    if details["type"] == "value_error":
        return str(details["ctx"]["error"])
    plain = _MESSAGES.get(details["type"])
    if plain is None and details["type"] in _LIBRARY_TYPES:
        plain = "this value cannot stand here"
    limits = {
        name: int(limit) if isinstance(limit, float) and limit.is_integer() else limit
        for name, limit in details.get("ctx", {}).items()
    }
    return plain.format(**limits) if plain else details["msg"]


_MESSAGES = {
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_type": "must be a number",
    "finite_number": "must be a finite number",
    "string_type": "must be text",
    "bool_type": "must be true or false",
    "dict_type": "must hold keys and values",
    "model_type": "must hold keys and values",
    "model_attributes_type": "must hold keys and values",
    "list_type": "must be a list",
    "tuple_type": "must be a list",
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be {ge} or more",
    "less_than_equal": "must be {le} or less",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
    "string_too_long": "must be at most {max_length:,} characters long",
    "too_long": "must have at most {max_length:,} entries",
    "less_than": "must be less than {lt}",
    "missing": "is missing",
    **dict.fromkeys(("int_parsing", "int_parsing_size"), "must be a whole number"),
    **dict.fromkeys(("float_parsing", "decimal_parsing"), "must be a number"),
    **dict.fromkeys(("bool_parsing",), "must be true or false"),
    **dict.fromkeys(("mapping_type", "dataclass_type"), "must hold keys and values"),
    **dict.fromkeys(("path_type",), "must be a path"),
    **dict.fromkeys(("url_parsing", "url_type", "url_scheme"), "must be a URL"),
    **dict.fromkeys(("none_required",), "must be left empty"),
    **dict.fromkeys(("union_tag_invalid", "union_tag_not_found"), "has none of the known forms"),
}
_LIBRARY_TYPES = frozenset(get_args(ErrorType))
_NUMBER_TYPES = frozenset({"int_type", "int_parsing", "float_type", "float_parsing"})
_TRUTHS = {
    **dict.fromkeys(("yes", "on", "y", "1", "true"), "true"),
    **dict.fromkeys(("no", "off", "n", "0", "false"), "false"),
}


def _keys_at(model: type[BaseModel], path: Path) -> set[str]:
    """The keys that may stand at `path` of a file described by `model`."""
    kinds: list[Any] = [model]
    for part in path:
        kinds = [inner for kind in kinds for inner in _inside(kind, part)]
    return {
        info.alias or name
        for kind in kinds
        if isinstance(kind, type) and issubclass(kind, BaseModel)
        for name, info in kind.model_fields.items()
    }


def _inside(kind: Any, part: str | int) -> list[Any]:
    """The possible types of entry `part` of a value of some type."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        kinds = [
            info.annotation for name, info in kind.model_fields.items() if part == info.alias
        ] or [info.annotation for name, info in kind.model_fields.items() if part == name]
        return [choice for annotation in kinds for choice in _choices(annotation)]
    arguments = get_args(kind)
    return _choices(arguments[-1]) if arguments else []


def _choices(annotation: Any) -> list[Any]:
    """Take unions and annotations apart."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _choices(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return [choice for member in get_args(annotation) for choice in _choices(member)]
    return [annotation]
