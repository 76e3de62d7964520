"""`eva up`: a whole cluster on this machine, for as long as the command runs."""

from __future__ import annotations

import asyncio
import os
import shlex
from pathlib import Path
from typing import TextIO, cast

from rich.console import Console
from rich.markup import escape

from eva_client.settings import CLIENT_FILE, client_file, remember_client_file
from eva_master.adapters.rpc.server.ports import Ports
from eva_master.app.clouds import cloud_of
from eva_master.app.config import MasterConfig
from eva_master.app.demo.jobs import FIRST_JOB
from eva_master.app.master import ended, serve
from eva_wire.service import logs
from eva_wire.values.errors import InvalidConfig


def run_up(config: MasterConfig) -> None:
    """Run a master and its emulated instances until interrupted.

    Jobs that have not ended resume from their newest stored checkpoints when the cluster is started
    again with the same state directory.

    Raises:
        InvalidConfig: The settings name another cloud.
        EvaError: The control loop cannot go on.
        SystemExit: The master broke down.
    """
    cloud = cloud_of(config)
    if not cloud.ends_with_master:
        raise InvalidConfig(
            f"eva up runs instances on this machine, and the cloud is {cloud.name}",
            hint="run: eva master",
        )
    logs.configure(cluster=config.cluster)
    # The end of the cluster may be the end of its reader, too, as with Ctrl-C in a pipe.
    console = Console(file=cast("TextIO", logs.UnfailingStderr()))
    prepared = cloud.prepare(config, console.print)
    config = prepared.config

    def tell(ports: Ports) -> None:
        host = config.listen.rpartition(":")[0]
        say_open(console, f"{host}:{ports.users}", config.state_dir)
        remember_client_file(config.state_dir.absolute() / CLIENT_FILE)
        if variables := client_settings(config):
            console.print(f"In other terminals:  {variables}", markup=False, soft_wrap=True)
        if prepared.told:
            console.print(prepared.told, markup=False, soft_wrap=True)
        console.print(
            f"In another terminal:  eva submit {first_job()} && eva top",
            markup=False,
            soft_wrap=True,
        )
        console.print("Ctrl-C stores what runs, then ends the cluster and its emulated instances.")

    def tell_end(sentence: str) -> None:
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    ended(asyncio.run(serve(config, power_off=True, on_open=tell, tell=tell_end)))


def say_open(console: Console, address: str, state_dir: Path) -> None:
    """Say that the cluster is up; the path stays on one line, so that it can be copied."""
    console.print(
        f"[bold green]Eva is up[/] at {address}; state in {escape(str(state_dir))}", soft_wrap=True
    )


def first_job() -> str:
    """A job file to begin with, for a shell: one of the demo's."""
    return shlex.quote(os.path.relpath(FIRST_JOB))


def client_settings(config: MasterConfig) -> str:
    """The variables that a shell needs for the command to find this cluster; empty if none."""
    own_file = config.state_dir.absolute() / CLIENT_FILE
    file_in_use = client_file()
    if file_in_use is not None and file_in_use.absolute() == own_file:
        return ""
    return f"export EVA_CONFIG={shlex.quote(str(own_file))}"
