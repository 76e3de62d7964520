"""Names of tasks on the command line: ``JOB/INDEX``, ``JOB/NAME`` and ``A-B``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

import click

from eva_wire.values.errors import NotFound

if TYPE_CHECKING:
    from eva_client.rpc.master import Client
    from eva_wire.rpc.messages import Task

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_INDEX = re.compile(r"[0-9]{1,9}")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


_MOST_NAMED = 20
_MOST_LOOKED_AT = 100


def find(client: Client, name: str) -> tuple[str, int | None]:
    """A job and the index of one of its tasks; no index for the name of a job alone.

    Args:
        client: Knows the names of tasks.
        name: ``JOB``, ``JOB/INDEX`` or ``JOB/NAME``.

    Raises:
        click.BadParameter: There is no such task.
        NotFound: There is no such job.
    """
    job, slash, task = name.partition("/")
    if not slash:
        return name, None
    if not job or not _NAME.fullmatch(task):
        raise click.BadParameter(
            f"{name!r} is no task; write the job, a slash and the task's index or name, such as "
            "train-1/0"
        )
    if _INDEX.fullmatch(task):
        return job, int(task)
    try:
        return client.task_named(job, task)
    except NotFound:
        message, listed = client.tasks(job, 0)
    raise click.BadParameter(_no_such(message.id, task, islice(listed, _MOST_LOOKED_AT)))


def _no_such(job: str, name: str, tasks: Iterable[Task]) -> str:
    """Complaint about a name that no task of a job has."""
    names = list(dict.fromkeys(task.name for task in tasks if task.name))
    some = ", ".join(names[:_MOST_NAMED])
    more = ", ..." if len(names) > _MOST_NAMED else ""
    choices = f"its tasks are named {some}{more}"
    if not names:
        choices = f"its tasks have no names; write {job}/0"
    return f"{job} has no task named {name!r}; {choices}"


class TaskRange(click.ParamType[tuple[int, int]]):
    """Indices of tasks, such as ``100-199`` or ``7``; converted to the first and the last."""

    name = "range"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """See `click.ParamType.convert`."""
        match = _RANGE.fullmatch(str(value))
        if match is None:
            self.fail(f"{value!r} is no range; write A-B, such as 100-199", param, ctx)
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        if last < first:
            self.fail(f"{value!r} ends before it begins; write {last}-{first}", param, ctx)
        return first, last
