"""Names of tasks on the command line: ``JOB/INDEX`` and ``A-B``."""

from __future__ import annotations

import re

import click

_INDEX = re.compile(r"[0-9]{1,9}")
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def split(name: str) -> tuple[str, int | None]:
    """A job and the index of one of its tasks; no index for the name of a job alone.

    Raises:
        click.BadParameter: What follows the slash is no index.
    """
    job, slash, index = name.partition("/")
    if not slash:
        return name, None
    if not job or not _INDEX.fullmatch(index):
        raise click.BadParameter(
            f"{name!r} is no task; write the job, a slash and the task's index, such as train-1/0"
        )
    return job, int(index)


class TaskRange(click.ParamType[tuple[int, int]]):
    """Indices of tasks, such as ``100-199`` or ``7``; converted to the first and the last."""

    name = "range"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """See `click.ParamType.convert`."""
        found = _RANGE.fullmatch(str(value))
        if found is None:
            self.fail(f"{value!r} is no range; write A-B, such as 100-199", param, ctx)
        first = int(found[1])
        last = first if found[2] is None else int(found[2])
        if last < first:
            self.fail(f"{value!r} ends before it begins; write {last}-{first}", param, ctx)
        return first, last
