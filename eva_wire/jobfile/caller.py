"""Variables without a value in a job file, which take that of whoever submits it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eva_wire.text.yamlfile import Document, Path
from eva_wire.values.errors import Problem


def names_of(document: Document) -> list[str]:
    """The variables of a job file that have no value, each once."""
    return list(dict.fromkeys(name for _, _, name in _open(document)))


def fill(
    document: Document, caller: Mapping[str, str] | None, envs: Mapping[str, str]
) -> list[Problem]:
    """Give the variables of a job file that have no value those of the caller.

    Args:
        document: The job file, which is changed.
        caller: Values by name; `None` where values make no difference, as in a preview.
        envs: Variables that override the file's.

    Returns:
        A complaint about each variable that has no value then.
    """
    problems = []
    for path, variables, name in [*_open(document)]:
        if caller is not None and name not in caller and name not in envs:
            message = "has no value, and none came with the file"
            hint = 'submit it with `eva submit`, which takes yours; write "" for an empty one'
            problems.append(document.problem((*path, name), message, hint))
        variables[name] = (caller or {}).get(name, "")
    return problems


def _open(document: Document) -> Iterator[tuple[Path, dict[str, Any], str]]:
    """Where each variable without a value stands, the mapping that has it, and its name."""
    tasks = document.value.get("tasks")
    paths: list[Path] = [()]
    paths += [("tasks", index) for index in range(len(tasks))] if isinstance(tasks, list) else []
    for path in paths:
        section = document.at(path) if path else document.value
        variables = section.get("envs") if isinstance(section, dict) else None
        if isinstance(variables, dict):
            for name, value in variables.items():
                if value is None:
                    yield (*path, "envs"), variables, name
