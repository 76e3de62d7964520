"""An operator's own settings for a deployed cluster, merged over those that the stack generates.

`eva deploy aws --settings FILE` checks a file and packs it; ``python -m
eva_master.app.clouds.ec2.own_settings DIRECTORY`` unpacks it on the master at each boot.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from eva_master.adapters.identities.principals import with_entries
from eva_wire.files import write_file
from eva_wire.settings.layers import merged
from eva_wire.text import yamlfile
from eva_wire.text.unreadable import text_of
from eva_wire.values.errors import InvalidConfig

if TYPE_CHECKING:
    from eva_master.app.config import MasterConfig

GENERATED, OWN, MERGED = "generated.yaml", "own.yaml", "master.yaml"
"""Names of the files on the master's instance."""
_STACKS = (
    *("advertise", "cloud", "cluster", "listen", "metrics_port", "objects", "state_dir"),
    *("state_id", "worker_listen"),
    *("ec2.instance_profile", "ec2.region", "ec2.security_groups"),
)
"""Settings that are the stack's: with another value the parts of the cluster would not fit."""
_FILES = {"catalog.file": "catalog.yaml", "ec2.snapshot": "snapshot.json"}
"""Settings that name a file, which goes along, and what it is called on the master."""


def packed(file: Path, region: str, zones: Sequence[str]) -> bytes:
    """Check a file of settings, and pack it with the files that it names.

    Args:
        file: Settings of the master, as far as they differ from what the stack generates.
        region: The cluster's region.
        zones: Where it launches workers.

    Returns:
        Input of `unpack`; equal for equal content, and empty for an empty file.

    Raises:
        InvalidConfig: A master would refuse them, with file, line and key of each problem.
    """
    if not text_of(file).strip():
        return b""
    own = yamlfile.read(file)
    taken = [
        own.problem(tuple(key.split(".")), "the stack says what this is", "leave it out")
        for key in _STACKS
        if _at(own.value, key) is not None
    ]
    if taken:
        raise yamlfile.invalid(InvalidConfig, str(file), taken)
    _check(file, region, zones)
    files = {}
    for key in _FILES:
        if (named := _at(own.value, key)) is not None:
            files[key] = text_of(Path(str(named)))
    content = {"settings": own.value, "files": files}
    return yaml.safe_dump(content, sort_keys=True, allow_unicode=True).encode()


def unpack(directory: Path) -> None:
    """Write the master's settings: those that were generated, and over them the operator's own.

    Args:
        directory: Has the generated file and perhaps a packed one; gets all others.
    """
    settings = _loaded(directory / GENERATED)
    if (directory / OWN).is_file():
        own = _loaded(directory / OWN)
        settings = combined(settings, own["settings"])
        for key, content in own["files"].items():
            target = directory / _FILES[key]
            write_file(target, content.encode())
            section, _, name = key.partition(".")
            settings[section][name] = str(target)
    text = yaml.safe_dump(settings, sort_keys=False, allow_unicode=True)
    write_file(directory / MERGED, text.encode())


def combined(generated: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Settings over others. Mappings are merged, but an empty one takes the place of what is there.

    So ``bundles: {}`` stands for images that have the worker. Identities are added to those of the
    operators who deploy.
    """
    settings = merged(generated, own)
    bundles = (own.get("ec2") or {}).get("bundles")
    if bundles == {}:
        settings["ec2"] = {**settings["ec2"], "bundles": {}}
    if listed := (own.get("ec2") or {}).get("identities"):
        deployers = generated["ec2"].get("identities", ())
        settings["ec2"] = {**settings["ec2"], "identities": with_entries(deployers, listed)}
    return settings


def as_master(file: Path | None, region: str, zones: Sequence[str]) -> MasterConfig:
    """The settings of a deployed master, with names in place of ids.

    Args:
        file: Settings over those that the stack will generate; `None` for none.
        region: The cluster's region.
        zones: Where it launches workers.

    Raises:
        InvalidConfig: A master would refuse them.
    """
    # Unpacking needs none of these.
    from eva_master.app.policy_registry import policies
    from eva_master.app.settings import load_master_config

    generated = {
        "cluster": "checked",
        "cloud": "ec2",
        "listen": "0.0.0.0:7411",
        "advertise": "10.0.0.1",
        "objects": f"s3://bucket/objects?region={region}",
        "state_dir": "/nonexistent/eva",
        "ec2": {"region": region, "subnets": {zone: f"subnet-of-{zone}" for zone in zones}},
    }
    return load_master_config(policies=policies(), file=file, defaults=generated, environment=False)


def _check(file: Path, region: str, zones: Sequence[str]) -> None:
    """Start from what the stack will generate."""
    from eva_master.adapters.catalog import load_catalog
    from eva_master.adapters.catalog.snapshot import read_snapshot
    from eva_master.app.clouds.ec2.wiring import BUILT_IN_REGION, ec2_catalog

    config = as_master(file, region, zones)
    section = config.section("ec2")
    if section.kms_key:
        raise InvalidConfig(
            f"{file}: ec2.kms_key: the roles of a stack may not use a key of your own",
            hint="leave it out: volumes are encrypted with the account's key",
        )
    if strange := sorted({*section.used_zones} - section.subnets.keys()):
        raise InvalidConfig(
            f"{file}: ec2.zones: the cluster has no subnet in {', '.join(strange)}",
            hint=f"choose among {', '.join(sorted(section.subnets))}",
        )
    if region == BUILT_IN_REGION or section.snapshot is not None:
        ec2_catalog(config)
    elif config.catalog.file is not None:
        load_catalog(config.catalog.file)
    if section.snapshot is not None and read_snapshot(section.snapshot) is None:
        raise InvalidConfig(f"there is no file {section.snapshot}", hint="see ec2.snapshot")


def _at(settings: Mapping[str, Any], key: str) -> Any:
    section, _, name = key.partition(".")
    value = settings.get(section)
    if not name:
        return value
    return value.get(name) if isinstance(value, Mapping) else None


def _loaded(file: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return document


if __name__ == "__main__":
    unpack(Path(sys.argv[1]))
