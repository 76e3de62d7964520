"""A job as a table with a row for each task: what it was given, how it went, what it reported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from eva_wire.jobfile.table import Rows
from eva_wire.text.moments import date_of
from eva_wire.values.ids import MILLION

if TYPE_CHECKING:
    from eva_wire.rpc.messages import Job, Task

Value = str | int | float | None
OWN = (
    *("task", "name", "state", "exit_code", "attempts", "failures", "moves"),
    *("started", "finished", "run_s", "cost_usd", "instance", "instance_type"),
    *("steps", "total_steps", "steps_per_second"),
)
"""Columns that every job has."""
_GIVEN = 2
"""Columns of the table follow so many of its own."""


def task_rows(
    job: Job, tasks: Iterable[Task], rows: Rows | None
) -> tuple[Sequence[str], Iterator[Mapping[str, Value]]]:
    """Names of columns, and a row for each task.

    A column of the table that has the name of one of `OWN` is ``table.NAME``, and metrics are
    ``metrics.NAME``. The column that names the tasks is there once.

    Args:
        job: The job; its cost is divided by the time for which its tasks have run.
        tasks: The tasks, with their times; extra runs are left out.
        rows: The table whose rows the tasks are, if any.
    """
    listed = [task for task in tasks if not task.replica]
    given: dict[str, str] = {}
    if rows is not None:
        given = {name: f"table.{name}" if name in OWN else name for name in rows.columns}
        if all(task.name == rows.row(task.index).get("name") for task in listed):
            given.pop("name", None)
    reported = sorted({name for task in listed for name in task.metrics})
    metrics = [f"metrics.{name}" for name in reported]
    columns = [*OWN[:_GIVEN], *given.values(), *OWN[_GIVEN:], *metrics]
    total_ms = sum(task.ran_ms for task in listed)

    def shaped() -> Iterator[Mapping[str, Value]]:
        for task in listed:
            row: dict[str, Value] = {**dict.fromkeys(columns), **_own(job, task, total_ms)}
            values = {} if rows is None else rows.row(task.index)
            row |= {column: values[name] for name, column in given.items()}
            yield row | {f"metrics.{name}": value for name, value in task.metrics.items()}

    return columns, shaped()


def _own(job: Job, task: Task, total_ms: int) -> Mapping[str, Value]:
    cost = job.cost_micro_usd * task.ran_ms / total_ms / MILLION if total_ms else None
    return {
        "task": task.index,
        "name": task.name or None,
        "state": task.state,
        "exit_code": task.exit_code if task.HasField("exit_code") else None,
        "attempts": task.attempt,
        "failures": task.failures,
        "moves": task.moves,
        "started": _moment(task.started_ms) if task.HasField("started_ms") else None,
        "finished": _moment(task.finished_ms) if task.HasField("finished_ms") else None,
        "run_s": task.ran_ms / 1_000 if task.HasField("ran_ms") else None,
        "cost_usd": None if cost is None else round(cost, 6),
        "instance": task.last_instance or None,
        "instance_type": task.instance_type or None,
        "steps": task.steps,
        "total_steps": task.total_steps or None,
        "steps_per_second": task.rate or None,
    }


def _moment(at_ms: int) -> str:
    return f"{date_of(at_ms):%Y-%m-%dT%H:%M:%S}Z"
