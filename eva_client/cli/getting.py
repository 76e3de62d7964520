"""The command that brings files of tasks to this machine: ``eva get``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eva_client.cli import task_names
from eva_client.cli.metrics import print_metrics
from eva_client.cli.session import (
    CommandSession,
    Patience,
    address_option,
    console,
    json_option,
    pass_session,
    print_json,
    print_json_lists,
)
from eva_client.cli.uploading import amount
from eva_client.cli.views.errors import note
from eva_client.cli.views.grid import Grid
from eva_client.cli.views.words import count
from eva_wire.text.escapes import visible

if TYPE_CHECKING:
    from eva_client.downloads import Fetched
    from eva_client.downloads.fetching import FetchProgress
    from eva_client.rpc.files import Listing
    from eva_client.rpc.master import Client

_NAMED = 5


@click.command()
@click.argument("job", metavar="JOB[/TASK]")
@click.argument("path", required=False)
@click.option(
    "--to",
    "directory",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="The directory; JOB/PATH if absent, such as train-1/outputs.",
)
@click.option("--list", "listing", is_flag=True, help="List the files, and fetch none.")
@click.option("--force", is_flag=True, help="Replace other files of the same names.")
@click.option(
    "--metrics",
    is_flag=True,
    help="Print a row for each task as CSV: columns of its table, metrics.",
)
@json_option
@address_option
@pass_session
def get(
    session: CommandSession,
    job: str,
    path: str | None,
    *,
    directory: Path | None,
    listing: bool,
    force: bool,
    metrics: bool,
    as_json: bool,
) -> None:
    """Fetch the outputs of JOB, its checkpoints or its logs.

    PATH is a file or a directory of a task, as --list shows them: outputs, checkpoints or logs, or
    below one of these. Without PATH the outputs are fetched. JOB/INDEX or JOB/NAME is one task.
    Files of several tasks come to a directory for each, by its index.

    --metrics prints a row for each task in place of files: its columns of the table of --array, how
    it went, when and where it ran, its part of the cost, and the metrics that it reported last.

    A running job has the files that were stored so far. An interrupted command goes on where it
    stopped when it is given again.

    \b
    eva get train
    eva get train/3 checkpoints --to /data/train
    eva get train outputs/model.pt
    eva get sweep --metrics >sweep.csv
    """  # noqa: D301 - what the formatter is told
    if metrics and (path or directory or listing or force):
        raise click.UsageError("--metrics fetches no files; leave out PATH and the other options")
    with session.client() as client:
        name, task = task_names.find(client, job)
        if metrics:
            print_metrics(client, name, task, as_json=as_json)
            return
        if listing:
            _list(client.files.listed(name, path or "", task=task), as_json=as_json)
            return
        fetched = fetch_shown(client, name, path or "outputs", task=task, to=directory, force=force)
    if as_json:
        print_json(
            {
                "job": fetched.job,
                "directory": str(fetched.directory),
                "fetched": fetched.fetched,
                "bytes": fetched.size,
                "present": fetched.present,
                "gone": sorted(fetched.gone),
            }
        )
        return
    say_fetched(fetched)


def say_fetched(fetched: Fetched, *, err: bool = False) -> None:
    """Tell what was fetched, on standard output or standard error."""
    present = f", {fetched.present:,} were there already" if fetched.present else ""
    files = count(fetched.fetched, "file")
    where = visible(str(fetched.directory))
    words = f"{fetched.job}: fetched {files} ({amount(fetched.size)}) to {where}{present}"
    click.echo(words, err=err)
    if fetched.gone:
        some = ", ".join(visible(name) for name in sorted(fetched.gone)[:_NAMED])
        more = len(fetched.gone) - _NAMED
        note(f"removed meanwhile: {some}" + (f" and {more:,} more" if more > 0 else ""))


def fetch_shown(client: Client, name: str, path: str, **options: Any) -> Fetched:
    """Fetch files with a bar of progress; see `eva_client.downloads.fetch`."""
    from eva_client.downloads import fetch

    with progress_bar() as progress:
        try:
            return fetch(
                client, name, path, progress=progress, patience=Patience(client), **options
            )
        except KeyboardInterrupt:
            note("interrupted; the same command goes on where this one stopped")
            raise


@contextmanager
def progress_bar() -> Iterator[FetchProgress]:
    """A bar on standard error with the progress of a fetch, if that is a terminal."""
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    screen = console(stderr=True)
    of_bytes = (TextColumn("fetching"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    columns = (*of_bytes, TimeRemainingColumn(), TextColumn("{task.fields[files]}"))
    with Progress(
        *columns, console=screen, transient=True, disable=not screen.is_terminal
    ) as progress:
        bar = progress.add_task("fetch", total=None, files="")

        def tell(done: int, total: int, files: int, files_total: int) -> None:
            words = f"{files:,}/{files_total:,} files"
            progress.update(bar, completed=done, total=total, files=words)

        yield tell


def _table(listing: Listing) -> Grid:
    several = listing.tasks > 1 or any(file.replica for file in listing.files)
    columns = (*(("TASK",) if several else ()), "SIZE", "STORED", "PATH")
    table = Grid(*columns, right=("SIZE",), drop=("STORED",))
    for file in listing.files:
        task = f"{file.task}+{file.replica}" if file.replica else str(file.task)
        stored = f"{datetime.fromtimestamp(file.modified_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}Z"
        table.add_row(*((task,) if several else ()), amount(file.size), stored, visible(file.path))
    return table


def _list(listing: Listing, *, as_json: bool) -> None:
    if as_json:
        files = (
            {
                "task": file.task,
                "extra_run": file.replica or None,
                "path": file.path,
                "bytes": file.size,
                "stored_ms": file.modified_ms,
            }
            for file in listing.files
        )
        print_json_lists({"job": listing.job, "task_count": listing.tasks}, {"files": files})
        return
    console().print(_table(listing))
    total = sum(file.size for file in listing.files)
    click.echo(f"{listing.job}: {count(len(listing.files), 'file')}, {amount(total)}")
