"""The command that prints logs: ``eva logs``."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

import click

from eva_client.cli import task_names
from eva_client.cli.log_streams import (
    MOST_STREAMS,
    Plain,
    Stream,
    Writer,
    as_json,
    copy_log,
    copy_logs,
    prefixed,
)
from eva_client.cli.session import (
    CommandSession,
    address_option,
    duration_ms,
    json_option,
    pass_session,
)
from eva_client.cli.views import job_tasks
from eva_client.cli.views.errors import note

if TYPE_CHECKING:
    from eva_client.rpc.master import Client
    from eva_wire.rpc.messages import Job, LogsRequest, Task


@click.command()
@click.argument("job", metavar="JOB[/TASK]")
@click.option("--follow", "-f", is_flag=True, help="Follow the log until the job ends.")
@click.option(
    "--task", type=click.IntRange(min=0), help="Index of the task, as in JOB/INDEX; 0 if absent."
)
@click.option("--all-tasks", is_flag=True, help="All tasks; each line begins with its task.")
@click.option(
    "--tail", "-n", type=click.IntRange(0, 1_000_000), metavar="N", help="Only the last N lines."
)
@click.option(
    "--since",
    metavar="DURATION",
    callback=duration_ms,
    help="Only what was stored in the last 10m, 2h, ...; a little more may come before it.",
)
@click.option("--previous", is_flag=True, help="Only the attempt before the newest one.")
@click.option(
    "--replica",
    type=click.IntRange(min=0, max=999_999_999),
    help="Of a task with several runs: 0 for its own, else the number of an extra one. If absent, "
    "the one that has succeeded, or its own.",
)
@click.option(
    "--raw/--no-raw",
    default=None,
    help="Print the bytes as they are, colours and escapes included; the default unless the output "
    "is a terminal.",
)
@json_option
@address_option
@pass_session
def logs(session: CommandSession, /, *, job: str, all_tasks: bool, **options: Any) -> None:
    """Print the output of a task of JOB, from all of its attempts.

    JOB/INDEX or JOB/NAME names the task, its first one if there is neither. Before each attempt but
    the first a line says where it runs, since when, and how the one before ended. That line, and
    which of several tasks this is, go to standard error.

    On a terminal, what would control it is written out, such as ^[ for escape. A file or a pipe
    gets the bytes that the task wrote. --raw and --no-raw choose. --json prints an object per line.
    """
    if options["previous"] and (options["follow"] or options["since"]):
        raise click.UsageError("--previous is of an attempt that is over; leave out the others")
    if options["raw"] is None:
        options["raw"] = not sys.stdout.isatty()
    with session.client() as client:
        name, index = task_names.find(client, job)
        if all_tasks:
            if index is not None or options["task"] is not None or options["replica"] is not None:
                raise click.UsageError("--all-tasks is of all tasks: name the job alone")
            _all_tasks(client, name, options)
            return
        chosen = options["task"]
        if index is None:
            index = chosen or 0
        elif chosen not in (None, index):
            raise click.UsageError(f"{job} names task {index}, and --task says {chosen}")
        # By id, since another job of the same name may be submitted meanwhile.
        message = client.job(name)
        out, request = sys.stdout.buffer, _request(message.id, index, options)
        if options["as_json"]:
            copy_log(client, request, as_json(out, threading.Lock(), message.id, index))
            return
        _say_which(message, index)
        writer = Plain(out, raw=options["raw"])
        try:
            copy_log(client, request, writer)
        finally:
            writer.close()


def _request(job: str, task: int, options: dict[str, Any]) -> LogsRequest:
    from eva_wire.rpc.messages import LogsRequest

    return LogsRequest(
        job=job,
        task=task,
        follow=options["follow"],
        replica=options["replica"],
        tail=options["tail"],
        last_ms=options["since"] or 0,
        previous=options["previous"],
    )


def _say_which(job: Job, index: int) -> None:
    """Say on standard error which of several tasks this is."""
    others = job_tasks.number(job) - 1
    if others > 0:
        many = f"{others:,} other task{'' if others == 1 else 's'}"
        note(f"{job.id}/{index}; there are {many}: `eva logs {job.id} --all-tasks`")


def _all_tasks(client: Client, name: str, options: dict[str, Any]) -> None:
    """Copy the logs of all tasks, when they are followed several at the same time."""
    job, listed = client.tasks(name, 0)
    tasks = [task for task in listed if not task.replica]
    labels = _labels(tasks)
    width = max(map(len, labels.values()), default=0)
    lock, out = threading.Lock(), sys.stdout.buffer

    def writer(task: Task) -> Writer:
        if options["as_json"]:
            return as_json(out, lock, job.id, task.index)
        prefix = f"{labels[task.index]:>{width}} | "
        return prefixed(out, lock, prefix, raw=options["raw"])

    follow = options["follow"]
    if follow:  # Running tasks come first: others may wait for long.
        tasks.sort(key=lambda task: (task.state == "waiting", task.index))
        if len(tasks) > MOST_STREAMS:
            note(f"{MOST_STREAMS} of {len(tasks):,} tasks at a time; others follow as these end")
    streams = [Stream(_request(job.id, task.index, options), writer(task)) for task in tasks]
    copy_logs(client, streams, at_once=MOST_STREAMS if follow else 1)


def _labels(tasks: list[Task]) -> dict[int, str]:
    """The name of each task if it has one of its own, else its index."""
    names = [task.name for task in tasks]
    own = {name for name in names if name and names.count(name) == 1} if len(tasks) <= 1000 else {}
    return {task.index: task.name if task.name in own else str(task.index) for task in tasks}
