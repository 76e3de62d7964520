"""Settings from several sources, merged, with the origin of each for the messages."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsError

from eva_wire.text import yamlfile
from eva_wire.text.yamlfile import Document, Mark, dotted
from eva_wire.values.errors import InvalidConfig, Problem

Model = TypeVar("Model", bound=BaseSettings)

_UNKNOWN = Mark(0, 0)


class Layers(Generic[Model]):
    """Defaults < file < environment < flags.

    Args:
        model: The type of the settings; its `env_prefix` names the variables.
        file: A YAML file, `None` for none.
        flags: Nested settings from the command line.
        defaults: Nested settings that all others override.
        exclusive: Keys with the same meaning: one of them overrides those of lower layers.
        environment: Whether this process's variables count.

    Raises:
        InvalidConfig: The file or a variable cannot be read, or one source has two of the exclusive
            keys.
    """

    def __init__(
        self,
        model: type[Model],
        *,
        file: Path | None,
        flags: Mapping[str, Any],
        defaults: Mapping[str, Any] | None = None,
        exclusive: Collection[str] = (),
        environment: bool = True,
    ) -> None:
        self._model = model
        self._exclusive = exclusive
        self._prefix = str(model.model_config.get("env_prefix", ""))
        self._file_name = str(file) if file else "settings"
        self._origins: dict[str, str] = {}
        self.document = Document({}, {})
        written = yamlfile.read(file) if file else Document({}, {})
        self._add(Document(dict(defaults or {})), dotted)
        self._add(written, dotted)
        if environment:
            self._add(Document(self._environment()), self._variable)
        self._add(Document(dict(flags)), _flag)

    def settings(self) -> Model:
        """Build the model.

        Raises:
            InvalidConfig: With every problem that was found.
        """
        try:
            return self._model(**self.document.value)
        except ValidationError as failure:
            problems = yamlfile.problems_of(failure, self.document, self._model)
            raise self.invalid(problems) from None

    def in_file(self, key: str) -> bool:
        """Whether the value in force of a key comes from the file."""
        return self.document.marks.get((key,), _UNKNOWN).line > 0

    def invalid(self, problems: list[Problem]) -> InvalidConfig:
        """Make the error for `problems`, each with its line, variable or flag."""
        named = [
            problem
            if problem.line
            else Problem(
                problem.message, self._origins.get(problem.key, problem.key), hint=problem.hint
            )
            for problem in problems
        ]
        in_file = all(problem.line for problem in named)
        return yamlfile.invalid(InvalidConfig, self._file_name if in_file else "settings", named)

    def refuse_unknown_variables(self) -> None:
        """Refuse variables with the prefix that have no effect.

        Raises:
            InvalidConfig: One is misspelt.
        """
        names = [self._prefix + name.upper() for name in self._model.model_fields]
        unknown = [
            Problem("unknown variable", name, hint=yamlfile.suggestion(name, names))
            for name in sorted(os.environ)
            if name.startswith(self._prefix) and name.split("__")[0] not in names
        ]
        if unknown:
            raise self.invalid(unknown)

    def _environment(self) -> dict[str, Any]:
        try:
            return EnvSettingsSource(self._model)()
        except SettingsError as failure:
            raise InvalidConfig(
                f"the environment has settings that cannot be read: {failure}",
                hint="write lists and maps as JSON",
            ) from failure

    def _variable(self, path: yamlfile.Path) -> str:
        return self._prefix + "__".join(map(str, path)).upper()

    def _add(self, layer: Document, name_of: Callable[[yamlfile.Path], str]) -> None:
        chosen = [key for key in self._exclusive if key in layer.value]
        if len(chosen) > 1:
            both = " and ".join(name_of((key,)) for key in chosen)
            raise InvalidConfig(f"{both} are both set", hint="they say the same thing: choose one")
        below = self.document.value
        if chosen:
            below = {key: value for key, value in below.items() if key not in self._exclusive}
        marks = dict(self.document.marks)
        for path in _paths(layer.value):
            self._origins[dotted(path)] = name_of(path)
            marks[path] = layer.marks.get(path, _UNKNOWN)
        self.document = Document(merged(below, layer.value), marks)


def _flag(path: yamlfile.Path) -> str:
    return "--" + "-".join(map(str, path)).replace("_", "-")


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Nested settings over others: mappings are merged, everything else is replaced."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        if isinstance(old, Mapping) and isinstance(value, Mapping):
            result[key] = merged(old, value)
        else:
            result[key] = value
    return result


def _paths(values: Any, above: yamlfile.Path = ()) -> Iterator[yamlfile.Path]:
    """All key paths in nested settings, including those of containers."""
    entries: Any = ()
    if isinstance(values, Mapping):
        entries = values.items()
    elif isinstance(values, list):
        entries = enumerate(values)
    for key, value in entries:
        yield (*above, key)
        yield from _paths(value, (*above, key))
