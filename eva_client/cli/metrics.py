"""A job's tasks as CSV: ``eva get --metrics``."""

from __future__ import annotations

import csv
import sys
from typing import TYPE_CHECKING

from eva_client.cli.session import print_json_lists
from eva_client.cli.views.errors import note
from eva_wire.values.errors import NotAuthorised, NotFound

if TYPE_CHECKING:
    from eva_client.rpc.master import Client
    from eva_wire.jobfile.table import Rows


def print_metrics(
    client: Client, reference: str, task: int | None = None, *, as_json: bool
) -> None:
    """Write a row for each task of a job to standard output.

    Args:
        client: The connection.
        reference: Id or name of the job.
        task: Index of the task; all tasks if absent.
        as_json: Whether to write JSON in place of CSV.

    Raises:
        NotFound: There is no such job or task.
    """
    from eva_client.downloads.task_rows import task_rows

    job, tasks = client.tasks(reference, task or 0, task, times=True)
    columns, rows = task_rows(job, tasks, _rows(client, job.id))
    if as_json:
        print_json_lists({"job": job.id}, {"tasks": rows})
        return
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)


def _rows(client: Client, job: str) -> Rows | None:
    """The table whose rows are the tasks of a job; `None` without one."""
    from eva_wire.jobfile.table import Rows

    try:
        data = client.files.table(job)
    except (NotAuthorised, NotFound) as error:
        note(f"without the columns of its table: {error.message}")
        return None
    return None if data is None else Rows(data)
