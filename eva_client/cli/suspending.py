"""Commands on suspended jobs: suspend, resume."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from eva_client.cli.refusals import refusals
from eva_client.cli.session import (
    CommandSession,
    address_option,
    json_option,
    pass_session,
    print_json,
)
from eva_client.cli.views.errors import note
from eva_client.cli.waiting import ENDED

if TYPE_CHECKING:
    from eva_client.rpc.master import Client
    from eva_wire.rpc.messages import Job

_Verdict = tuple[str, bool]
"""The result for a job, and whether the master has to be asked for it."""


@click.command()
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True)
@json_option
@address_option
@pass_session
def suspend(session: CommandSession, jobs: tuple[str, ...], as_json: bool) -> None:
    """Suspend jobs: they stop from a checkpoint, and wait until they are resumed.

    A suspended job takes no room and costs nothing. Jobs that cannot be suspended do not hold up
    the others; the exit code is 1 then.
    """

    def verdict(job: Job) -> _Verdict:
        if job.state in (*ENDED, "ending"):
            return _over(job), False
        if _by_user(job):
            return "is suspended already", False
        return "suspended; `eva resume` has it go on", True

    _all(session, jobs, verdict, lambda client, job: client.suspend(job).job_id, as_json=as_json)


def _amount(_: click.Context, __: click.Parameter, value: str | None) -> int | None:
    from eva_wire.text.quantities import parse_cap

    try:
        return None if value is None else parse_cap(value)
    except ValueError as failure:
        raise click.BadParameter(
            "write dollars, more than 0 and at most a million, such as 10"
            " (a shell takes what follows a $ for a variable)"
        ) from failure


@click.command()
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True)
@click.option(
    "--max-cost",
    metavar="AMOUNT",
    callback=_amount,
    help="Dollars that each of them may cost in all from now on, such as 10.",
)
@json_option
@address_option
@pass_session
def resume(
    session: CommandSession, jobs: tuple[str, ...], max_cost: int | None, as_json: bool
) -> None:
    """Have suspended jobs go on from their checkpoints, as soon as there is room.

    A job that has come to its `max_cost` goes on with a higher one of --max-cost alone. Jobs that
    cannot be resumed do not hold up the others; the exit code is 1 then.
    """

    def verdict(job: Job) -> _Verdict:
        if job.state in (*ENDED, "ending"):
            return _over(job), False
        if _by_user(job) or _at_cap(job):
            return "resumed; it goes on once there is room", True
        if max_cost is not None:
            return "has another max_cost", True
        if job.HasField("suspension"):
            return f"{job.suspension.reason}; it goes on by itself", False
        return "is not suspended", False

    def resumed(client: Client, job: str) -> str:
        return client.resume(job, max_cost=max_cost).job_id

    _all(session, jobs, verdict, resumed, as_json=as_json)


def _by_user(job: Job) -> bool:
    return job.HasField("suspension") and job.suspension.by == "user"


def _at_cap(job: Job) -> bool:
    return job.HasField("suspension") and job.suspension.by == "cost"


def _over(job: Job) -> str:
    return "is ending" if job.state == "ending" else f"has ended already: {job.state}"


def _all(
    session: CommandSession,
    names: tuple[str, ...],
    verdict: Callable[[Job], _Verdict],
    act: Callable[[Client, str], str],
    *,
    as_json: bool,
) -> None:
    """Do it to every job that there is, and tell what became of each and of the rest."""
    rows: dict[str, tuple[str, bool]] = {}
    with refusals(quiet=as_json) as refused, session.client() as client:

        def change(name: str) -> None:
            job = client.job(name, to_change=True)
            if job.id in rows:
                return
            words, due = verdict(job)
            if due:
                act(client, job.id)
            rows[job.id] = words, due
            if not as_json:
                (click.echo if due else note)(f"{job.id}: {words}")

        refused.each(change, names)
        if as_json:
            changed = [
                {"id": job, "changed": due, "message": words} for job, (words, due) in rows.items()
            ]
            print_json({"jobs": changed, "refused": refused.shapes("job")})
