"""One job of another system's list, whatever its form, and the words that its forms share."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from eva_wire.values.bounds import MOST_TASKS
from eva_wire.values.errors import Problem

MOST_AMOUNT = 10**12
_LONGEST_NAME = 100
_NOTHING = frozenset({"", "-1", "none", "null", "nan"})
_NOT_IN_OWNER = re.compile(r"[^A-Za-z0-9._@-]+")

NO_RUN_TIME = "no run time"
NO_DEMAND = "no demand"
FAILED = "failed"
TOO_LARGE = "larger than every instance type"


@dataclass(frozen=True, slots=True)
class EqualTasks:
    """Equal tasks of a job; an amount that the list does not tell is 0.

    Attributes:
        count: How many tasks there are.
        gpus: GPUs of each.
        cpus: vCPUs of each.
        memory_gib: Memory of each.
        divisible: Whether the tasks may be more and smaller, if no instance type can hold them.
    """

    count: int
    gpus: float = 0
    cpus: float = 0
    memory_gib: float = 0
    divisible: bool = False


@dataclass(frozen=True, slots=True)
class ListedJob:
    """A job as a list has it.

    Attributes:
        arrival_s: Seconds since any time that all jobs of the list have in common.
        duration_s: Seconds, more than 0.
        parts: Its tasks, at least one.
        workload: Workload of the job; jobs of one workload behave alike.
        user: Of whom; empty if that is not told.
    """

    arrival_s: float
    duration_s: float
    parts: tuple[EqualTasks, ...]
    workload: str
    user: str = ""


@dataclass(slots=True)
class JobList:
    """The jobs of a list, and what became of its other rows.

    Attributes:
        path: The file.
        rows: How many jobs it has in all.
        jobs: Jobs that can be run again.
        left_out: How many were left out, by the reason.
        unread: Columns that say nothing to a simulation.
        problems: Problems, with line and field.
    """

    path: Path
    rows: int = 0
    jobs: list[ListedJob] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    unread: tuple[str, ...] = ()
    problems: list[Problem] = field(default_factory=list)

    def add(self, job: ListedJob | str) -> None:
        """Append a job, or count one that is left out for this reason."""
        if isinstance(job, str):
            self.left_out[job] += 1
        else:
            self.jobs.append(job)


def told_of(left_out: Counter[str], total: int, what: str) -> str:
    """Note for users on what was left out of a list: how many of how many, and why."""
    reasons = ", ".join(f"{why} {count:,}" for why, count in sorted(left_out.items()))
    return f"left out {left_out.total():,} of {total:,} {what}: {reasons}"


def is_nothing(word: str | None) -> bool:
    """Whether a cell says that it says nothing."""
    return word is None or word.strip().lower() in _NOTHING


def amount(word: str, what: str) -> float:
    """A number that is not negative.

    Raises:
        ValueError: The word is no amount; the message names the field.
    """
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not 0 <= value <= MOST_AMOUNT or "_" in word:
        raise ValueError(f"{what}: {word.strip()[:40]!r} is no number from 0 to {MOST_AMOUNT:g}")
    return value


def whole(word: str, what: str) -> int:
    """A whole number of tasks or nodes, from 1 on; raises `ValueError` if it is none."""
    value = amount(word, what)
    if value != int(value) or not 1 <= value <= MOST_TASKS:
        raise ValueError(f"{what}: {word.strip()[:40]!r} is no number from 1 to {MOST_TASKS:,}")
    return int(value)


def instant_s(word: str, what: str) -> float:
    """A time in seconds, or as a date and time of day (UTC unless it tells), as seconds.

    Raises:
        ValueError: The word is no time; the message names the field.
    """
    text = word.strip()
    try:
        return amount(text, what)
    except ValueError:
        try:
            date = datetime.fromisoformat(text)
        except ValueError:
            message = (
                f"{what}: {text[:40]!r} is neither seconds nor a time like 2020-06-09 18:41:01"
            )
            raise ValueError(message) from None
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def owner_of(user: str) -> str:
    """A user's name with the characters that an owner may have; empty for none."""
    return _NOT_IN_OWNER.sub("-", user.strip()).strip("-.")[:63]


def workload_of(word: str, form: str) -> str:
    """Workload of a job, by its name in the list; by the list's form if it has none."""
    name = "".join(character for character in word.strip() if character.isprintable())[
        :_LONGEST_NAME
    ]
    return name if not is_nothing(name) else form
