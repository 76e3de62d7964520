"""Commands on what can be bought: catalog ls, and what clouds add."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from eva_client.cli.session import console, json_option, print_json
from eva_master.app.commands.extended_group import ExtendedGroup

if TYPE_CHECKING:
    from eva_master.app.config import MasterConfig

config_option = click.option(
    "--config",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Settings of the master; /etc/eva/master.yaml if absent.",
)
name_option = click.option(
    "--only", "names", metavar="NAME", multiple=True, help="Type or family; may be repeated."
)
architecture_option = click.option(
    "--arch",
    "architectures",
    type=click.Choice(["x86_64", "arm64"]),
    multiple=True,
    help="Architecture of the CPUs; may be repeated.",
)


@click.group(cls=ExtendedGroup)
def catalog() -> None:
    """Show what the master may buy, and ask the cloud for it anew."""


@catalog.command()
@config_option
@name_option
@architecture_option
@click.option("--gpu/--no-gpu", "gpus", default=None, help="Only types with GPUs, or without.")
@click.option("--max-price", metavar="PRICE", help="Highest on-demand price, such as $5/h.")
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
    """List the offerings that the master may buy, cheapest first."""
    from eva_master.adapters.catalog.market import TypeFilter
    from eva_master.app.clouds import cloud_of
    from eva_master.app.commands import offerings

    config = master_config(file)
    cloud = cloud_of(config)
    choice = TypeFilter(
        names or None, architectures or None, gpus, _price(max_price) if max_price else None
    )
    listed = sorted(
        (
            offering
            for offering in cloud.catalog(config)
            if choice.admits(offering.type, offering.price)
        ),
        key=lambda it: (it.price, it.id),
    )
    taken = cloud.prices_taken(config)
    if as_json:
        print_json(
            {"taken": taken, "offerings": [offerings.shape(offering) for offering in listed]}
        )
    elif listed:
        console().print(offerings.table(listed))
        click.echo(f"prices of {taken}" if taken else "prices that came with Eva", err=True)
    else:
        click.echo("no offering matches")


def master_config(file: Path | None) -> MasterConfig:
    """The settings of the master on this machine, or of a file."""
    from eva_master.app.config import MASTER_FILE
    from eva_master.app.policy_registry import policies
    from eva_master.app.settings import load_master_config

    if file is None and MASTER_FILE.is_file():
        file = MASTER_FILE
    return load_master_config(policies=policies(), file=file)


def _price(text: str) -> int:
    from eva_master.adapters.catalog.pricebook import parse_price

    try:
        return parse_price(text)
    except ValueError as error:
        raise click.BadParameter(f"{error}; write $5/h", param_hint="--max-price") from error
