"""Runs a world through the production loop, and records what cloud and workers see of it."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml

from eva_master.app.clouds import cloud_of
from eva_master.app.config import MasterConfig
from eva_master.app.master import control_settings
from eva_master.app.policy_registry import policies
from eva_master.app.sections.policies import built
from eva_master.app.settings import load_master_config
from eva_master.model.catalog import Catalog, Offering
from eva_master.ports import Policy
from tests.worlds.life import Life
from tests.worlds.records import Story
from tests.worlds.world import World

L = TypeVar("L", bound=Life)

POLICIES: Mapping[str, Mapping[str, Any]] = {
    "eva": {"name": "eva"},
    "eva_published": {"name": "eva_published"},
    "stratus": {"name": "stratus"},
    "no_packing": {"name": "no_packing"},
    "hadar": {"name": "hadar"},
    "fifo": {"name": "fifo"},
    "slearn": {"name": "slearn"},
    "astraea": {"name": "astraea"},
    "cloudcoaster+eva": {
        "name": "eva",
        "short": {"name": "cloudcoaster", "below": "90s", "options": {"slots": 4, "hold_s": 20}},
    },
    "cloudcoaster+slearn": {
        "name": "slearn",
        "back": "eva",
        "short": {"name": "cloudcoaster", "below": "90s", "options": {"slots": 4, "hold_s": 20}},
    },
    "slearn+eva": {"name": "eva", "short": {"name": "slearn", "below": "90s"}},
    "eva+slearn": {"name": "slearn", "short": {"name": "eva", "below": "90s"}},
    "slearn/eva": {"name": "slearn", "back": "eva"},
}
"""Sections of the settings: FRONT+BACK for short jobs in front of others, FIRST/BACK for who
orders with another one behind it that buys."""
POOLS = frozenset({"cloudcoaster+eva", "cloudcoaster+slearn"})
"""Policies whose instances stand though they are empty."""


def run(world: World, policy: str = "eva", *, trace: bool = False) -> Story:
    """Run a world under a policy to its end.

    Args:
        trace: Whether what happens is told in words.
    """
    return begin(world, policy, trace=trace).lived()


def begin(world: World, policy: str, *, trace: bool = False, kind: type[L] | None = None) -> L:
    """A run of a world under a policy that nothing has happened in.

    Args:
        trace: Whether what happens is told in words.
        kind: The kind of run; `Life` if it is not given.
    """
    with tempfile.TemporaryDirectory(prefix="eva-world-") as folder:
        config = _config(world, POLICIES[policy], Path(folder))
        catalog, settings = _catalog(world, config), control_settings(config)
    chosen: Policy | Mapping[str, Policy]
    parts = {name: built(section) for name, section in config.policy_sections.items()}
    chosen = parts if settings.partitions.divided else parts[""]
    grids = [settings.round_grid_ms, *(it.round_grid_ms for it in settings.partitions.all)]
    story = Story(world, policy, max(settings.round_gap_ms, *grids), pools=policy in POOLS)
    life = kind or cast("type[L]", Life)
    return life(world, story, config, catalog, settings, chosen, trace=trace)


def _config(world: World, policy: Mapping[str, Any], folder: Path) -> MasterConfig:
    catalog = {
        "types": {kind.name: kind.entry for kind in world.kinds},
        "only": [kind.name for kind in world.kinds],
    }
    (folder / "catalog.yaml").write_text(yaml.safe_dump(catalog))
    nodes = {
        name: {
            "type": kind.name,
            "capacity": {
                "cpus": kind.cpus,
                "memory": f"{kind.memory_gib}GiB",
                **({"gpus": kind.gpus} if kind.gpus else {}),
                **({"disk": f"{kind.disk_gib}GiB"} if kind.disk_gib else {}),
            },
        }
        for name, kind in world.nodes.items()
    }
    flags = {
        "state_dir": str(folder),
        "catalog": {"file": str(folder / "catalog.yaml")},
        "policy": dict(policy),
        **({"nodes": nodes} if nodes else {}),
        **world.settings,
    }
    return load_master_config(policies=policies(), flags=flags)


def _catalog(world: World, config: MasterConfig) -> Catalog:
    offered = cloud_of(config).catalog(config)
    return tuple(
        replace(_with_disk(it, world), minimum_ms=world.minimum_s * 1000) for it in offered
    )


def _with_disk(offering: Offering, world: World) -> Offering:
    """An offering whose instances have the disk that the world says, or get it at launch."""
    kind = world.kind(offering.type.name)
    capacity = replace(offering.type.capacity, disk_mib=kind.disk_gib << 10)
    machine = replace(offering.type, capacity=capacity, sized_disk=kind.sized_disk)
    return replace(offering, type=machine)
