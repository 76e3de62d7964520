"""``eva demo``: a cluster of this machine that packs jobs, moves them and shows the bill."""

from __future__ import annotations

import sys

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--keep", is_flag=True, help="Keep the cluster's state and logs.")
def demo(*, as_json: bool, keep: bool) -> None:
    """Run some jobs on a private cluster of emulated instances, and show what they cost.

    The demo takes one to three minutes, needs no cloud account, and leaves nothing behind. Tasks
    run in containers where a Docker engine answers, else as processes.

    \b
    Example:
        eva demo --json | jq .bill.saved_usd
    """  # noqa: D301 - what the formatter is told
    from eva_master.app.demo.run import run

    sys.exit(run(as_json=as_json, keep=keep))
