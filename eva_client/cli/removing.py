"""Commands that remove files from the store: ``eva rm``, ``eva gc``."""

from __future__ import annotations

from functools import partial

import click

from eva_client.cli.refusals import refusals
from eva_client.cli.session import (
    CommandSession,
    address_option,
    console,
    json_option,
    pass_session,
    print_json,
)
from eva_client.cli.uploading import amount
from eva_client.cli.views.words import count


@click.command()
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@address_option
@pass_session
def rm(session: CommandSession, jobs: tuple[str, ...], yes: bool) -> None:
    """Remove outputs, checkpoints and logs of jobs that have ended.

    The jobs stay in `eva ls --all` and in the bill. Files that a job reads which has not ended are
    refused. Jobs that are refused do not hold up the others; the exit code is 1 then.
    """
    with refusals() as refused, session.client() as client:
        # Names are resolved first, so that exactly the confirmed jobs lose their files.
        named = refused.each(partial(client.job, to_change=True), jobs)
        chosen = list(dict.fromkeys(message.id for message in named))
        names = ", ".join(chosen)
        refused.ask(names and f"remove all files of {names}?", yes=yes)

        def remove(name: str) -> None:
            click.echo(f"removed the files of {client.files.remove(name)}")

        refused.each(remove, chosen)


@click.command()
@click.option("--dry-run", is_flag=True, help="Say what would go, and remove nothing.")
@json_option
@address_option
@pass_session
def gc(session: CommandSession, dry_run: bool, as_json: bool) -> None:
    """Remove uploads that no job needs from the object store.

    Files of working directories and build contexts go once no job names them whose files were not
    removed, active or ended; not within two days of their upload, nor within a day after a client
    was told that they are there. Leftovers go, too: files that an instance stored after `eva rm`,
    and partial files of uploads that died two days ago. For operators.
    """
    screen = console(stderr=True)
    with session.client() as client, screen.status("looking through the store"):
        *_, sums = client.files.collect(dry_run=dry_run)
    if as_json:
        print_json(
            {
                "dry_run": dry_run,
                "uploads": sums.uploads,
                "uploads_bytes": sums.uploads_bytes,
                "leftovers": sums.leftovers,
                "leftovers_bytes": sums.leftovers_bytes,
            }
        )
        return
    verb = "would remove" if dry_run else "removed"
    uploads = f"{count(sums.uploads, 'upload')} ({amount(sums.uploads_bytes)})"
    leftovers = f"{count(sums.leftovers, 'leftover')} ({amount(sums.leftovers_bytes)})"
    click.echo(f"{verb} {uploads} and {leftovers}")
