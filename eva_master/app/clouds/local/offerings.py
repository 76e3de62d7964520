"""Offerings of a master on this machine: types of a catalog, on demand and on the spot market."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from eva_master.adapters.catalog import load_catalog
from eva_master.adapters.catalog.market import TypeFilter, as_spot, discounted
from eva_master.app.cloud_provider import Complaint
from eva_master.app.clouds.local.section import section_of
from eva_master.app.config import MasterConfig
from eva_master.model.catalog import Catalog, Offering
from eva_wire.values.errors import InvalidConfig


def local_catalog(config: MasterConfig) -> Catalog:
    """Every type on demand, and behind them those that the settings sell as spot instances.

    Raises:
        InvalidConfig: A catalog file is wrong.
    """
    disk = _disk_mib(config.state_dir)
    types = tuple(
        _with_disk(type_, disk) for type_ in load_catalog(config.catalog.file, config.catalog.only)
    )
    spot = section_of(config).spot
    if spot is None:
        return types
    sold = TypeFilter(names=spot.types)
    cheap = (
        as_spot(type_, discounted(type_.price, spot.discount), spot.expected_life)
        for type_ in types
        if sold.admits(type_.type, type_.price)
    )
    return (*types, *cheap)


def _disk_mib(state_dir: Path) -> int:
    """Size of the file system that instances of this machine are on."""
    nearest = next(path for path in (state_dir, *state_dir.absolute().parents) if path.exists())
    return shutil.disk_usage(nearest).total >> 20


def _with_disk(offering: Offering, mib: int) -> Offering:
    machine = offering.type
    return replace(
        offering, type=replace(machine, capacity=replace(machine.capacity, disk_mib=mib))
    )


def complaints(config: MasterConfig) -> Iterator[Complaint]:
    """Which of the types that are to be spot instances nobody sells."""
    spot = section_of(config).spot
    if spot is None or spot.types is None:
        return
    try:
        types = load_catalog(config.catalog.file, config.catalog.only)
    except InvalidConfig:
        return  # The master refuses the file with its own lines when it starts.
    for number, name in enumerate(spot.types):
        if not any(TypeFilter(names=[name]).admits(type_.type, type_.price) for type_ in types):
            families = ", ".join(dict.fromkeys(type_.type.family for type_ in types))
            message = f"the catalog has no instance type or family {name!r}"
            yield ("local", "spot", "types", number), message, f"its families: {families}"
