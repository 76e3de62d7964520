"""A master whose cloud is EC2: ``python -m tests.fakes.ec2.master``, in place of ``eva master``."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from eva_master.adapters.bootstrap import Bootstrap
from eva_master.adapters.ec2.cloud import Ec2Cloud
from eva_master.adapters.ec2.settings import Ec2Settings
from eva_master.adapters.ec2.userdata import Boot, user_data
from eva_master.app import logs
from eva_master.app.config import MasterConfig, load_master_config
from eva_master.app.master import serve
from eva_master.app.registry import policies
from eva_master.model.actions import CloudAction, LaunchInstance
from eva_master.model.catalog import Purchase
from eva_master.ports import Clock, Inbox
from tests.fakes.hosts.process import die_with_parent

MODULE = "tests.fakes.ec2.master"


class _Cloud(Ec2Cloud):
    def execute(self, action: CloudAction) -> None:
        if isinstance(action, LaunchInstance):
            purchase = Purchase(os.environ.get("PURCHASE", Purchase.ON_DEMAND))
            offering = replace(action.offering, zone="us-east-1a", purchase=purchase)
            action = replace(action, offering=offering)
        super().execute(action)


@click.command()
@click.option("--config", type=click.Path(path_type=Path), required=True)
@click.option("--state-dir", required=True)
@click.option("--listen", required=True)
@click.option("--metrics-port", type=int, required=True)
def main(config: Path, **flags: Any) -> None:
    die_with_parent()
    settings = load_master_config(policies=policies(), file=config, flags=flags)
    logs.configure(settings.cluster)
    ec2 = json.loads(os.environ["EC2"])
    boot = Boot(**json.loads(os.environ["BOOT"]))

    def open_cloud(
        config: MasterConfig, inbox: Inbox, clock: Clock, bootstrap: Bootstrap
    ) -> _Cloud:
        return _Cloud(
            inbox,
            clock,
            Ec2Settings(cluster=config.cluster, **ec2),
            user_data=lambda launch: user_data(boot, bootstrap, launch),
        )

    failure = asyncio.run(
        serve(settings, power_off=False, on_open=lambda *_: None, open_cloud=open_cloud)
    )
    sys.exit(1 if failure else 0)


if __name__ == "__main__":
    main()
