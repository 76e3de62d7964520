"""Commands on what can be bought: catalog ls, catalog update."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eva_master.app.cli.session import console, json_option, print_json

if TYPE_CHECKING:
    from eva_master.adapters.catalog.snapshot import Snapshot
    from eva_master.app.config import MasterConfig

_config_option = click.option(
    "--config",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Settings of the master; /etc/eva/master.yaml if absent.",
)
_name_option = click.option(
    "--only", "names", metavar="NAME", multiple=True, help="Type or family; may be repeated."
)
_architecture_option = click.option(
    "--arch",
    "architectures",
    type=click.Choice(["x86_64", "arm64"]),
    multiple=True,
    help="Of the CPUs; may be repeated.",
)


@click.group()
def catalog() -> None:
    """Show what the master may buy, and ask AWS for it anew."""


@catalog.command()
@_config_option
@_name_option
@_architecture_option
@click.option("--gpu/--no-gpu", "gpus", default=None, help="Only types with GPUs, or without.")
@click.option("--max-price", metavar="PRICE", help="Such as $5/h, on demand.")
@json_option
def ls(
    *,
    file: Path | None,
    names: tuple[str, ...],
    architectures: tuple[str, ...],
    gpus: bool | None,
    max_price: str | None,
    as_json: bool,
) -> None:
    """List what is for sale to the master, cheapest first."""
    from eva_master.adapters.catalog.market import Choice
    from eva_master.app.cli.views import offerings
    from eva_master.app.master import catalog_of

    config = _config(file)
    choice = Choice(
        names or None, architectures or None, gpus, _price(max_price) if max_price else None
    )
    found = sorted(
        (it for it in catalog_of(config) if choice.admits(it.type, it.price)),
        key=lambda it: (it.price, it.id),
    )
    taken = _taken(config)
    if as_json:
        print_json({"taken": taken, "offerings": [offerings.shape(it) for it in found]})
    elif found:
        console().print(offerings.table(found))
        click.echo(f"prices of {taken}" if taken else "prices that came with Eva", err=True)
    else:
        click.echo("nothing that matches is for sale")


@catalog.command()
@_config_option
@_name_option
@_architecture_option
@click.option("--region", metavar="REGION", help="If the settings name none.")
@click.option("--endpoint", metavar="URL", help="Of AWS's API, for tests.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Where to write it.")
@json_option
def update(
    *,
    file: Path | None,
    names: tuple[str, ...],
    architectures: tuple[str, ...],
    region: str | None,
    endpoint: str | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """Ask AWS what it sells and for how much; the master's next start goes by it.

    Takes credentials with ec2:DescribeInstanceTypes, ec2:DescribeInstanceTypeOfferings,
    ec2:DescribeSpotPriceHistory and pricing:GetProducts.
    """
    from eva_master.adapters.catalog.snapshot import read_snapshot
    from eva_master.adapters.ec2 import Ec2Settings
    from eva_master.adapters.ec2.offerings import take_snapshot
    from eva_master.app.clouds.ec2.wiring import ec2_settings, snapshot_file

    config = None if region and out else _config(file)
    section = config.ec2 if config else None
    if config is not None and section is not None:
        settings = ec2_settings(config)
        target = out or snapshot_file(config)
    elif region and out:
        settings, target = Ec2Settings("", region), out
    else:
        raise click.UsageError("the settings have no section ec2: give --region and --out")
    settings = replace(
        settings, region=region or settings.region, endpoint=endpoint or settings.endpoint
    )
    wanted = names or (config.catalog.only if config else None) or None
    before = read_snapshot(target) if target.is_file() else None
    now = take_snapshot(
        settings,
        architectures=architectures or (section.architectures if section else ("x86_64",)),
        names=wanted,
    )
    now.write(target)
    changes = _changes(before, now)
    if as_json:
        print_json({"file": str(target), "types": len(now.types), **changes})
        return
    words = ", ".join(f"{len(which)} {what}" for what, which in changes.items() if which)
    click.echo(f"{target}: {len(now.types)} types in {now.region} ({words or 'as before'})")
    if config is not None:
        click.echo("the master reads it when it starts", err=True)


def _changes(before: Snapshot | None, now: Snapshot) -> dict[str, list[str]]:
    old = before.types if before is not None else {}
    return {
        "new": sorted(now.types.keys() - old.keys()),
        "gone": sorted(old.keys() - now.types.keys()),
        "repriced": sorted(
            name
            for name in now.types.keys() & old.keys()
            if now.types[name].price != old[name].price
        ),
    }


def _config(file: Path | None) -> MasterConfig:
    from eva_master.app.config import MASTER_FILE, load_master_config
    from eva_master.app.policy_registry import policies

    if file is None and MASTER_FILE.is_file():
        file = MASTER_FILE
    return load_master_config(policies=policies(), file=file)


def _taken(config: MasterConfig) -> str | None:
    from eva_master.app.clouds.ec2.wiring import snapshot_of

    if config.cloud != "ec2":
        return None
    snapshot = snapshot_of(config)
    return None if snapshot is None else snapshot.taken.isoformat()


def _price(text: str) -> int:
    from eva_master.adapters.catalog.pricebook import parse_price

    try:
        return parse_price(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}; write $5/h", param_hint="--max-price") from error
