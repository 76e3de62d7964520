"""The command that prints logs: ``eva logs``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Protocol

import click

from eva_master.adapters.text.escapes import VisibleBytes
from eva_master.app.cli import task_names
from eva_master.app.cli.session import Patience, Session, address_option, pass_session
from eva_master.model.errors import Unreachable

if TYPE_CHECKING:
    from eva_master.adapters.rpc.client.master import Client


@click.command()
@click.argument("job", metavar="JOB[/INDEX]")
@click.option("--follow", "-f", is_flag=True, help="Follow the log until the job ends.")
@click.option(
    "--task", type=click.IntRange(min=0), help="Index of the task, as in JOB/INDEX; 0 if absent."
)
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
@address_option
@pass_session
def logs(
    session: Session,
    *,
    job: str,
    follow: bool,
    task: int | None,
    replica: int | None,
    raw: bool | None,
) -> None:
    """Print the output of a task of JOB, from all of its attempts.

    JOB/INDEX names the task, its first one if there is no index.

    On a terminal, what would control it is written out, such as ^[ for escape. A file or a pipe
    gets the bytes that the task wrote. --raw and --no-raw choose.
    """
    name, index = task_names.split(job)
    if index is None:
        index = task or 0
    elif task not in (None, index):
        raise click.UsageError(f"{job} names task {index}, and --task says {task}")
    out = sys.stdout.buffer
    with session.client() as client:
        # By id, since another job of the same name may be submitted meanwhile.
        found = client.job(name).id
        if not sys.stdout.isatty() if raw is None else raw:
            copy_logs(client, found, index, out, follow=follow, replica=replica)
            return
        shown = VisibleBytes(out)
        try:
            copy_logs(client, found, index, shown, follow=follow, replica=replica)
        finally:
            shown.close()


class Output(Protocol):
    """A stream that takes bytes."""

    def write(self, data: bytes, /) -> object:
        """Write all of the bytes."""

    def flush(self) -> object:
        """Hand on what was written."""


def copy_logs(
    client: Client,
    job: str,
    task: int,
    out: Output,
    *,
    follow: bool,
    replica: int | None = None,
) -> None:
    """Copy a task's output to a stream.

    If the master goes away while the output is followed, the call is repeated and the bytes already
    written are skipped.

    Raises:
        Unreachable: The master does not answer, or was away for too long.
    """
    patience = Patience()
    written = 0
    while True:
        skip = written
        try:
            for chunk in client.logs(job, task=task, follow=follow, replica=replica):
                patience.restore()
                fresh = chunk[skip:]
                skip -= len(chunk) - len(fresh)
                out.write(fresh)
                out.flush()
                written += len(fresh)
        except Unreachable as error:
            if not follow:
                raise
            patience.pause(error)
        else:
            return
