"""Inputs that are the outputs of another job: ``job:JOB[/TASK]/outputs[/PATH]``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

from eva_wire.text.yamlfile import Path, shortened

_PREFIX = "job:"
_DIRECTORY = "outputs"
_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_INDEX = re.compile(r"[0-9]{1,9}")
_LONGEST_PATH = 900
"""Bytes: keys of the object store have 1,024 in all."""
_FORM = "write job:JOB/outputs, job:JOB/TASK/outputs for one task's, or a path below either"


@dataclass(frozen=True, slots=True)
class TaskNames:
    """How a job's tasks are told apart.

    Attributes:
        count: How many there are.
        names: Of all of them, in order, if they have names.
    """

    count: int
    names: tuple[str, ...] = ()

    def index(self, task: str) -> int | None:
        """The index of a task by its index or name; `None` if there is none."""
        if _INDEX.fullmatch(task):
            return int(task) if int(task) < self.count else None
        return self.names.index(task) if task in self.names else None

    def complaint(self, job: str, task: str) -> tuple[str, str]:
        """Tell that there is no such task, and what to do."""
        last = self.count - 1
        has = "one task, number 0" if last == 0 else f"{last + 1:,} tasks, 0 to {last}"
        return f"job {job} has no task {task!r}: it has {has}", "write the index or name of a task"


@dataclass(frozen=True, slots=True)
class Reference:
    """An input as it is written.

    Attributes:
        job: Id or name of the job.
        task: Index or name of one of its tasks; empty for all.
        path: Below the outputs; empty for all of them.
    """

    job: str
    task: str = ""
    path: str = ""

    @classmethod
    def of(cls, text: str) -> Self | None:
        """Read an input; `None` if it is a URL.

        Raises:
            ValueError: The text names a job's outputs and is malformed.
        """
        if not text.startswith(_PREFIX):
            return None
        job, *rest = text.removeprefix(_PREFIX).split("/")
        all_tasks = rest[:1] == [_DIRECTORY]
        task = "" if all_tasks or not rest else rest.pop(0)
        if not (_JOB.fullmatch(job) and rest[:1] == [_DIRECTORY] and (all_tasks or _is_name(task))):
            raise ValueError(f"{shortened(text)!r} names no outputs of a job; {_FORM}")
        names = rest[1:-1] if rest[-1] == "" else rest[1:]
        path = "/".join(names)
        if not all(map(_is_name, names)) or len(path.encode(errors="replace")) > _LONGEST_PATH:
            raise ValueError(
                f"{shortened(text)!r}: no path below outputs; empty names, '.' and '..' have no"
                f" place in one, and it has at most {_LONGEST_PATH} bytes"
            )
        return cls(job, task, path)


def _is_name(text: str) -> bool:
    return text not in {"", ".", ".."} and text.isprintable()


def references(inputs: Mapping[str, str]) -> Iterator[tuple[Path, str, Reference]]:
    """The inputs that are outputs of jobs: where each stands, its name, and what it says."""
    for name, text in inputs.items():
        if (reference := Reference.of(text)) is not None:
            yield ("storage", "inputs", name), name, reference


def urls(inputs: Mapping[str, str]) -> dict[str, str]:
    """The other inputs, by their names."""
    return {name: url for name, url in inputs.items() if Reference.of(url) is None}
