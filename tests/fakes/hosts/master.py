"""A master whose instances are test hosts: ``python -m tests.fakes.hosts.master``.

The options are those of `eva up`, and before them what a machine needs to be told.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from eva_master.adapters.local.cloud import WORKER
from eva_master.app.clouds.local.wiring import local_cloud
from eva_master.app.master import serve
from eva_master.app.policy_registry import policies
from eva_master.app.settings import load_master_config
from eva_wire.service import logs
from tests.fakes.hosts.process import die_with_parent

MODULE = "tests.fakes.hosts.master"


@click.command()
@click.option("--config", type=click.Path(path_type=Path), required=True)
@click.option("--state-dir", required=True)
@click.option("--listen", required=True)
@click.option("--metrics-port", type=int, required=True)
@click.option("--leave-on", is_flag=True, help="Instances outlive the master.")
@click.argument("machine", nargs=-1)
def main(
    config: Path,
    state_dir: str,
    listen: str,
    metrics_port: int,
    leave_on: bool,
    machine: Sequence[str],
) -> None:
    """Run a master.

    MACHINE is the command that takes the place of a worker; the worker's own is appended.
    """
    die_with_parent()
    flags = {"state_dir": state_dir, "listen": listen, "metrics_port": metrics_port}
    settings = load_master_config(policies=policies(), file=config, flags=flags)
    logs.configure(cluster=settings.cluster)
    open_cloud = functools.partial(local_cloud, worker_command=[*machine, "--", *WORKER])
    failure = asyncio.run(
        serve(
            settings,
            power_off=not leave_on,
            on_open=lambda *_: None,
            open_cloud=open_cloud,
        )
    )
    sys.exit(1 if failure else 0)


if __name__ == "__main__":
    main()
