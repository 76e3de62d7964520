"""Reads YAML files of users, so that every error message has a line and a suggestion.

Scalars are those of YAML 1.2. In YAML 1.1 ``no`` is false, ``1:30`` is ninety and ``1e-3`` is a
string, which users do not expect.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from eva_master.model.errors import EvaError, Problem

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
# Aliases can make a small file huge, and a user's file must not exhaust the master's memory.
_MOST_NODES = 100_000
_MOST_DEPTH = 32


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


def load(
    text: str, *, file_name: str, error: type[EvaError], text_under: frozenset[str] = frozenset()
) -> Document:
    """Read a YAML mapping.

    Args:
        text: The file's content.
        file_name: For the error message.
        error: What to raise.
        text_under: Keys whose mappings keep their scalars as they are written: an environment
            variable ``0.10`` is not ``0.1``.

    Raises:
        EvaError: Of the type `error`: it is not YAML, no mapping, or has a key twice.
    """
    builder = _Builder(text_under)
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        value = {} if node is None else builder.build(node, ())
    except _TooMuchError:
        builder.problems.append(Problem("the file is too large or nested too deeply"))
    except RecursionError:
        builder.problems.append(Problem("the file is nested too deeply"))
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
    if len(ordered) == 1:
        return error(f"{file_name}:{in_words(ordered[0])}", problems=ordered)
    return error(f"{file_name} has {len(ordered)} problems", problems=ordered)


def in_words(problem: Problem) -> str:
    """Write a problem in one line, after the name of its file and a colon."""
    where = f"{problem.line}:{problem.column}: " if problem.line else " "
    return f"{where}{problem.key}: {problem.message}" if problem.key else where + problem.message


def problems_of(
    failure: ValidationError, document: Document, model: type[BaseModel]
) -> list[Problem]:
    """Convert pydantic's errors to problems of the file."""
    return [_problem_of(details, document, model) for details in failure.errors(include_url=False)]


def suggestion(word: str, known: list[str]) -> str:
    """Suggest what `word` was meant to be; empty without a guess."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"did you mean {close[0]!r}?" if close else ""


class _TooMuchError(Exception):
    pass


class _Builder:
    """Converts nodes to values and remembers their positions."""

    def __init__(self, text_under: frozenset[str]) -> None:
        self.marks: dict[Path, Mark] = {}
        self.problems: list[Problem] = []
        self._text_under = text_under
        self._nodes = 0

    def build(self, node: yaml.Node, path: Path, *, as_text: bool = False) -> Any:
        self._nodes += 1
        if self._nodes > _MOST_NODES or len(path) > _MOST_DEPTH:
            raise _TooMuchError
        if not node.tag.startswith("tag:yaml.org,2002:") or ":python/" in node.tag:
            self._complain(node, path, f"unknown tag {node.tag}")
        if isinstance(node, yaml.MappingNode):
            return dict(self._entries(node, path))
        if isinstance(node, yaml.SequenceNode):
            items = []
            for index, child in enumerate(node.value):
                self.marks[(*path, index)] = _mark(child)
                items.append(self.build(child, (*path, index)))
            return items
        assert isinstance(node, yaml.ScalarNode)
        self._check_text(node, path)
        return _scalar(node, as_text=as_text)

    def _complain(self, node: yaml.Node, path: Path, message: str) -> None:
        mark = _mark(node)
        self.problems.append(Problem(message, dotted(path), mark.line, mark.column))

    def _check_text(self, node: yaml.ScalarNode, path: Path) -> None:
        # "\\ud800" is valid YAML, but half a character that UTF-8 cannot encode.
        if any("\ud800" <= char <= "\udfff" for char in node.value):
            node.value = node.value.encode(errors="replace").decode()
            self._complain(node, path, "this is not Unicode text")

    def _entries(self, node: yaml.MappingNode, path: Path) -> Iterator[tuple[str, Any]]:
        as_text = bool(path) and path[-1] in self._text_under
        seen: set[str] = set()
        for key_node, child in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                self._complain(key_node, path, "a key must be a word")
                continue
            self._check_text(key_node, path)
            key = key_node.value
            if key in seen:
                self._complain(key_node, (*path, key), "the key stands twice")
            seen.add(key)
            self.marks[(*path, key)] = _mark(key_node)
            yield key, self.build(child, (*path, key), as_text=as_text)


def _mark(node: yaml.Node) -> Mark:
    return Mark(node.start_mark.line + 1, node.start_mark.column + 1)


def _scalar(node: yaml.ScalarNode, *, as_text: bool) -> Any:
    text: str = node.value
    if node.style is not None or (as_text and _WORDS.get(text, True) is not None):
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
    message = f"this is not YAML: {f'{context}, ' if context else ''}{what}"
    if mark is None:
        return Problem(message)
    return Problem(message, "", mark.line + 1, mark.column + 1)


def _problem_of(details: ErrorDetails, document: Document, model: type[BaseModel]) -> Problem:
    location = details["loc"]
    path = document.path_of(location)
    context = details.get("ctx", {})
    match details["type"]:
        case "extra_forbidden":
            known = sorted(_keys_at(model, path[:-1]))
            hint = suggestion(str(path[-1]), known) or f"known keys: {', '.join(known)}"
            return document.problem(path, f"unknown key {path[-1]!r}", hint)
        case "missing":
            missing = (*path, location[-1])
            return document.problem(missing, f"{location[-1]!r} is missing")
        case _:
            return document.problem(path, wording(details), str(context.get("hint", "")))


def wording(details: ErrorDetails) -> str:
    """Word pydantic's error for a user."""
    plain = _MESSAGES.get(details["type"])
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
    "greater_than": "must be greater than {gt}",
    "greater_than_equal": "must be {ge} or more",
    "less_than_equal": "must be {le} or less",
    "literal_error": "must be {expected}",
    "enum": "must be {expected}",
    "string_too_short": "must not be empty",
    "too_short": "must not be empty",
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
        found = [
            info.annotation for name, info in kind.model_fields.items() if part == info.alias
        ] or [info.annotation for name, info in kind.model_fields.items() if part == name]
        return [choice for one in found for choice in _choices(one)]
    arguments = get_args(kind)
    return _choices(arguments[-1]) if arguments else []


def _choices(annotation: Any) -> list[Any]:
    """Take unions and annotations apart."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _choices(get_args(annotation)[0])
    if origin in (Union, UnionType):
        return [choice for one in get_args(annotation) for choice in _choices(one)]
    return [annotation]
