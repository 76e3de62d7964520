"""The command retry: an ended job is submitted again."""

from __future__ import annotations

import click

from eva_client.cli.session import (
    CommandSession,
    address_option,
    json_option,
    pass_session,
    print_json,
)
from eva_client.cli.views.errors import note
from eva_client.cli.views.words import plain


@click.command()
@click.argument("job", metavar="JOB")
@click.option("--failed", is_flag=True, help="Only the tasks that failed.")
@click.option("--wait", is_flag=True, help="Wait for the new job and exit with its exit code.")
@json_option
@address_option
@click.pass_context
@pass_session
def retry(
    session: CommandSession,
    ctx: click.Context,
    /,
    *,
    job: str,
    failed: bool,
    wait: bool,
    as_json: bool,
) -> None:
    """Submit a JOB that has ended again, with the same files, and print the new job's id.

    Tasks keep their indices. Unfinished and failed tasks go on from their checkpoints; tasks that
    had succeeded begin anew, and are left out by --failed.
    """
    from eva_client.cli.submit import wait_for_all

    with session.client() as client:
        # The name is resolved first, since the new job has it too.
        answer = client.retry(client.job(job, to_change=True).id, failed=failed)
        if as_json:
            document = {"id": answer.job_id, "retry_of": answer.retry_of, "tasks": answer.tasks}
            print_json({**document, "notes": list(answer.notes)})
        else:
            click.echo(answer.job_id)
            tasks = "1 task" if answer.tasks == 1 else f"{answer.tasks:,} tasks"
            note(f"{answer.job_id}: does {tasks} of {answer.retry_of} again")
            for doubt in answer.notes:
                click.echo(f"{answer.job_id}: {plain(doubt)}", err=True)
        if wait:
            ctx.exit(wait_for_all(client, [answer.job_id]))
