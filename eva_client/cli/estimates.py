"""The command that shows what the cluster has learned of run times: estimates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from eva_client.cli.session import (
    CommandSession,
    address_option,
    console,
    json_option,
    pass_session,
    print_json,
)
from eva_client.cli.views.grid import Grid
from eva_client.cli.views.words import ago, give_or_take, plain
from eva_wire.values.durations import span

if TYPE_CHECKING:
    from eva_wire.rpc.messages import LearnedTime, LearnedTimes

_COLUMNS = ("OWNER", "FEATURE", "VALUE", "RUN TIME", "SPREAD", "ERROR", "JOBS", "TASKS", "LAST")


@click.command()
@click.option("--owner", metavar="NAME", default="", help="Of this owner alone.")
@json_option
@address_option
@pass_session
def estimates(session: CommandSession, owner: str, as_json: bool) -> None:
    """Show what was learned about how long tasks run.

    Jobs that have something in common, such as the workload or the hour of their submission, are
    expected to take equally long. RUN TIME is the median of their tasks alone on an instance,
    SPREAD how far jobs are apart (±50%: two of three take between 1/1.5 and 1.5 times as long;
    >100%: too far for an estimate to be shown), ERROR how far off it was when it was to predict the
    next job. `eva status JOB` shows what follows for one job.
    """
    with session.client() as client:
        learned = client.estimates(owner)
    if as_json:
        print_json(shape(learned))
    elif learned.times:
        console().print(table(learned))
    elif learned.estimates == "off":
        click.echo("run times are not estimated; the master's setting `estimates` is off")
    else:
        click.echo("no job has ended yet of which a task has finished")


def table(message: LearnedTimes) -> Grid:
    """A table with one row per owner and value of a feature."""
    drawn = Grid(
        *_COLUMNS,
        right=("RUN TIME", "SPREAD", "ERROR", "JOBS", "TASKS"),
        drop=("TASKS", "JOBS", "LAST", "OWNER"),
    )
    for entry in message.times:
        drawn.add_row(
            plain(entry.owner),
            entry.feature,
            plain(_value(entry)),
            span(entry.median_ms),
            _percent(entry.spread),
            _percent(entry.error),
            f"{entry.jobs:,}",
            f"{entry.tasks:,}",
            ago(entry.ended_ms, message.now_ms),
        )
    return drawn


def _value(one: LearnedTime) -> str:
    match one.feature:
        case "hour":
            return f"{int(one.value):02}:00 UTC"
        case "cpus":
            return f"{int(one.value) / 1000:g}"
        case "memory":
            return f"{int(one.value) / 1024:g} GiB"
        case _:
            return one.value or "all jobs"


def _percent(deviation: float) -> str:
    """A standard deviation of logarithms as a part of the run time; ``-`` if there is none yet."""
    if not deviation:
        return "-"
    share = give_or_take(deviation)
    return f"±{share}" if share else ">100%"


def shape(message: LearnedTimes) -> dict[str, Any]:
    """The output of ``--json``; see `eva_client.cli.views.shapes`."""
    return {
        "now_ms": message.now_ms,
        "estimates": message.estimates,
        "times": [
            {
                "owner": time.owner,
                "feature": time.feature,
                "value": time.value or None,
                "median_ms": time.median_ms,
                "log_deviation": time.spread,
                "log_deviation_within_jobs": time.spread_within,
                "log_error": time.error or None,
                "jobs": time.jobs,
                "tasks": time.tasks,
                "ended_ms": time.ended_ms,
            }
            for time in message.times
        ],
    }
