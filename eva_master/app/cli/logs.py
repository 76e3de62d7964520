"""The command that prints logs: ``eva logs``."""

from __future__ import annotations

import sys
from typing import IO, TYPE_CHECKING

import click

from eva_master.app.cli.session import Patience, Session, address_option, pass_session
from eva_master.model.errors import Unreachable

if TYPE_CHECKING:
    from eva_master.adapters.rpc.client.master import Client


@click.command()
@click.argument("job")
@click.option("--follow", "-f", is_flag=True, help="Follow the log until the job ends.")
@click.option(
    "--task", type=click.IntRange(min=0), default=0, help="Number of the task; 0 if absent."
)
@address_option
@pass_session
def logs(session: Session, job: str, follow: bool, task: int) -> None:
    """Print the output of a task of JOB, from all of its attempts."""
    with session.client() as client:
        # By id, since another job of the same name may be submitted meanwhile.
        copy_logs(client, client.job(job).id, task, sys.stdout.buffer, follow=follow)


def copy_logs(
    client: Client,
    job: str,
    task: int,
    out: IO[bytes],
    *,
    follow: bool,
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
            for chunk in client.logs(job, task=task, follow=follow):
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
