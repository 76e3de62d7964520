"""Commands on jobs: ls, status, cancel, plan."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eva_client.cli import task_names
from eva_client.cli.array_tables import array_options, read_local_table
from eva_client.cli.jobfiles import read_job_file
from eva_client.cli.refusals import refusals
from eva_client.cli.session import (
    CommandSession,
    address_option,
    console,
    json_option,
    limit_option,
    now_of,
    pass_session,
    print_json,
    print_json_lists,
)
from eva_client.cli.task_names import TaskRange
from eva_client.cli.views.errors import note
from eva_client.cli.waiting import ENDED

if TYPE_CHECKING:
    from eva_client.rpc.master import Client
    from eva_wire.rpc.messages import Job, Task

_TASKS_PER_TABLE = 1_000
_SHOWN = 200
"""Lines of a table, unless more are asked for."""


def _labels(
    context: click.Context, parameter: click.Parameter, stated: tuple[str, ...]
) -> dict[str, str]:
    """Labels by key, from KEY=VALUE; raises `click.BadParameter`."""
    labels: dict[str, str] = {}
    for pair in stated:
        key, equals, value = pair.partition("=")
        if not (key and equals):
            raise click.BadParameter(f"{pair!r} is not of the form KEY=VALUE", context, parameter)
        if labels.setdefault(key, value) != value:
            raise click.BadParameter(f"no job has two values of {key}", context, parameter)
    return labels


@click.command()
@click.option("--all", "-a", "ended", is_flag=True, help="List jobs that have ended, too.")
@click.option(
    "-l",
    "--label",
    "labels",
    metavar="KEY=VALUE",
    multiple=True,
    callback=_labels,
    help="List jobs with this label; of several, with all of them.",
)
@limit_option
@json_option
@address_option
@pass_session
def ls(
    session: CommandSession, ended: bool, labels: dict[str, str], limit: int | None, as_json: bool
) -> None:
    """List jobs, newest first.

    A table ends after 200 jobs; JSON is not limited unless you say so.
    """
    from eva_client.cli.views import shapes, tables

    with session.client() as client:
        if as_json:
            jobs = client.jobs(ended=ended, most=limit, labels=labels)
            print_json_lists({}, {"jobs": map(shapes.job, jobs)})
            return
        shown = limit or _SHOWN
        jobs = client.jobs(ended=ended, most=shown + 1, labels=labels)
        listed = list(islice(jobs, shown))
        more = next(jobs, None) is not None
    if listed:
        console().print(tables.jobs(listed, now_of(*listed)))
        if more:
            click.echo(f"... and older ones; `--limit {10 * len(listed)}` shows more of them")
    else:
        what = " with these labels" if labels else ""
        click.echo(
            f"no jobs{what}" if ended else f"no active jobs{what}; `eva ls --all` lists ended ones"
        )


@click.command()
@click.argument("job", metavar="[JOB[/TASK]]", required=False)
@click.option(
    "--tasks",
    "chosen",
    metavar="A-B",
    type=TaskRange(),
    help="Show the tasks of these indices, such as 100-199.",
)
@click.option("--failed", is_flag=True, help="Show the tasks that have failed.")
@json_option
@address_option
@pass_session
def status(
    session: CommandSession,
    job: str | None,
    chosen: tuple[int, int] | None,
    failed: bool,
    as_json: bool,
) -> None:
    """Show everything about JOB, an id, or the name of your newest active job, else the newest.

    JOB/INDEX or JOB/NAME shows one of its tasks. Without JOB it tells how the cluster is.

    For a job of more than 100 tasks, tasks are shown that failed, ended last, have a place or wait
    though they began. --tasks and --failed show others.
    """
    from eva_client.cli.views import shapes, tables

    with session.client() as client:
        if job is None:
            if failed or chosen:
                raise click.UsageError("--tasks and --failed show tasks of a job; name the job")
            state = client.describe()
            if as_json:
                print_json(shapes.cluster(state))
            else:
                console().print(tables.cluster(state))
            return
        name, index = task_names.find(client, job)
        if index is not None:
            if failed or chosen:
                raise click.UsageError(f"{job} is one task; leave out --tasks and --failed")
            _show_task(client, name, index, as_json=as_json)
            return
        if failed or chosen:
            first, last = chosen or (0, None)
            _show_tasks(*client.tasks(name, first, last, failed=failed), as_json=as_json)
            return
        message = client.job(name)
    if as_json:
        print_json(shapes.job(message))
    else:
        console().print(tables.job(message, now_of(message)))


def _show_task(client: Client, name: str, index: int, *, as_json: bool) -> None:
    """Print one task of a job, with its extra runs."""
    from eva_client.cli.views import shapes, tables

    message, listed = client.tasks(name, index, index)
    own, *extra = listed
    if as_json:
        runs = {"extra_runs": [shapes.task(run) for run in extra]}
        print_json({"job": message.id, **shapes.task(own), **runs})
    else:
        shown = [tables.task(message, run, now_of(message)) for run in (own, *extra)]
        console().print(*shown, sep="\n")


def _show_tasks(found: Job, listed: Iterator[Task], *, as_json: bool) -> None:
    """Print some tasks of a job, a page at a time."""
    from eva_client.cli.views import job_tasks, shapes, tables

    if as_json:
        counts = {"job": found.id, "task_count": job_tasks.number(found)}
        by_state = {"tasks_by_state": dict(job_tasks.counted(found))}
        print_json_lists({**counts, **by_state}, {"tasks": map(shapes.task, listed)})
        return
    click.echo(f"{found.id}: {job_tasks.in_words(found)}")
    while page := list(islice(listed, _TASKS_PER_TABLE)):
        console().print(tables.tasks(page, now_of(found)))


@click.command()
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True)
@click.option("--now", is_flag=True, help="Kill the tasks at once, without their grace period.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@address_option
@pass_session
def cancel(session: CommandSession, jobs: tuple[str, ...], now: bool, yes: bool) -> None:
    """Cancel jobs. Their tasks are stopped; checkpoints and logs are kept.

    Tasks have their grace period to store what they have done. With --now they are killed at once,
    also those of a job that is ending already. Jobs that cannot be cancelled do not hold up the
    others; the exit code is 1 then.
    """
    with refusals() as refused, session.client() as client:
        # Names are resolved first, so that exactly the confirmed jobs are cancelled.
        named = refused.each(partial(client.job, to_change=True), jobs)
        states = {message.id: message.state for message in named}
        chosen = [job for job, state in states.items() if state not in ENDED]
        for job, state in states.items():
            if state in ENDED:
                note(f"{job} has ended already: {state}")
        names = ", ".join(f"{job} ({states[job]})" for job in chosen)
        refused.ask(names and f"cancel {names}?", yes=yes)

        def end(job: str) -> None:
            click.echo(f"cancelled {client.cancel(job, now=now).job_id}")

        refused.each(end, chosen)


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@array_options
@json_option
@address_option
@pass_session
def plan(session: CommandSession, file: str, array: str | None, names: str, as_json: bool) -> None:
    """Preview where the job in FILE would run and what it would cost; nothing changes."""
    from rich.console import Group

    from eva_client.cli.views import explanation, shapes, tables
    from eva_client.cli.views.words import plain

    table = read_local_table(array, names)
    job_file = read_job_file(Path(file))
    job_file.check(table=None if table is None else table.table)
    with session.client() as client:
        answer = client.plan(
            job_file.text,
            file_name=job_file.name,
            table=None if table is None else table.preview,
        )
    if as_json:
        print_json(
            {
                **shapes.plan(answer),
                "instances": [explanation.hosting_shape(hosting) for hosting in answer.hostings],
                "exchanges": [
                    explanation.exchange_shape(exchange) for exchange in answer.exchanges
                ],
            }
        )
    else:
        why = Group(
            *explanation.hostings(answer.hostings), *explanation.exchanges(answer.exchanges)
        )
        console().print(tables.plan(answer), why, sep="\n")
        for note in answer.notes:
            click.echo(f"note: {plain(note)}", err=True)
