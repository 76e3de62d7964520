"""The command wait: until jobs have ended."""

from __future__ import annotations

import click

from eva_client.cli.refusals import refusals
from eva_client.cli.session import (
    CommandSession,
    address_option,
    duration_ms,
    json_option,
    pass_session,
    print_json,
)
from eva_client.cli.views.errors import note


@click.command()
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True)
@click.option(
    "--timeout",
    "timeout_ms",
    metavar="DURATION",
    callback=duration_ms,
    help="Wait for 30s, 10m, 2h, ... at most; the exit code is 124 then.",
)
@json_option
@address_option
@click.pass_context
@pass_session
def wait(
    session: CommandSession,
    ctx: click.Context,
    /,
    *,
    jobs: tuple[str, ...],
    timeout_ms: int | None,
    as_json: bool,
) -> None:
    """Wait until jobs have ended; exit with 0 if all succeeded.

    JOB is an id, or the name of your newest active job, else of the newest. The exit code is that
    of the first job in the order of the arguments that did not succeed. Ctrl-C ends the waiting,
    not the jobs.
    """
    from eva_client.cli.views import shapes
    from eva_client.cli.waiting import still_running, wait_for

    with session.client() as client:
        with refusals() as refused:  # None is waited for if one is not found.
            # Names are resolved first, so that later jobs of these names are not waited for.
            ids = list(dict.fromkeys(refused.each(lambda job: client.job(job).id, jobs)))
        try:
            waited = wait_for(client, ids, timeout_s=timeout_ms and timeout_ms / 1_000)
        except KeyboardInterrupt:
            still_running(ids)
            ctx.exit(130)
        if as_json:
            ended = [shapes.job(waited.ended[id_]) for id_ in ids if id_ in waited.ended]
            print_json({"jobs": ended, "unfinished": waited.unfinished})
        elif waited.unfinished:
            note(f"{' '.join(waited.unfinished)}: not ended yet, and no longer waited for")
    ctx.exit(waited.exit_code)
