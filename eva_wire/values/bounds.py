"""Bounds of what a job may state, and its kinds, for both ends of the wire."""

from __future__ import annotations

from enum import StrEnum

from eva_wire.values.ids import MILLION

ASKS_FOR_RETRY = 75
"""Exit code (EX_TEMPFAIL) of a program that asks to be tried again, however soon it failed."""
MOST_GRACE_MS = 86_400_000
"""The longest grace period of any task, whatever operators allow."""
MOST_TASKS = 1_000_000
"""Tasks of an array at most."""
MOST_ROWS = 100_000
"""Rows of the table of an array at most, each of which is a task."""
MOST_MEMBERS = 10_000
"""Tasks of a gang at most."""
MOST_PILOTS = 100
"""More would hardly make a mean surer, and each is looked for whenever room becomes free."""
LARGEST_BATCH = 1_000_000
"""Examples in a mini-batch at most."""
MOST_SECRETS = 64
"""Secrets that a job uses at most."""
MOST_SECRET_BYTES = 65_536
"""Bytes of the value of a secret at most."""
MOST_FORKS = 64
"""Forks of a job at most."""
MOST_STATED = 1_000_000 * MILLION
"""In micro-dollars: users state at most a million dollars, and that much of loss per hour."""
LEAST_SPAN_MS = 1_000
"""Users state no shorter time in which a worth halves."""
DEFAULT_TENANT = "default"
"""Tenant of jobs whose users belong to none."""


class JobKind(StrEnum):
    """Whether the tasks of a job depend on each other."""

    GANG = "gang"
    """Gang: all tasks run or none does; they progress at the speed of the slowest."""
    ARRAY = "array"
    """Array: the tasks are independent of one another."""


def most_tasks(kind: JobKind) -> int:
    """How many tasks a job may have at most, whatever the operator allows."""
    return MOST_TASKS if kind is JobKind.ARRAY else MOST_MEMBERS
