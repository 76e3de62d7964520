"""A master's EC2: what its settings come to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path

import structlog

from eva_master.adapters.catalog import current_types, load_catalog, named_in
from eva_master.adapters.catalog.market import PurchaseTerms, TypeFilter, on_sale
from eva_master.adapters.catalog.snapshot import CatalogSnapshot, read_snapshot
from eva_master.adapters.ec2 import Ec2Cloud, Ec2Settings
from eva_master.adapters.ec2.launching.images import drives, image_name
from eva_master.adapters.ec2.launching.userdata import METADATA_URL, Boot, user_data
from eva_master.adapters.ec2.memory import for_tasks
from eva_master.adapters.ec2.offerings import is_burstable, take_snapshot
from eva_master.adapters.ec2.settings import IMAGES
from eva_master.adapters.store.launches import LaunchTable
from eva_master.app.cloud_provider import CloudSite
from eva_master.app.clouds.ec2.section import Ec2Section, boot_logs, s3_endpoint
from eva_master.app.config import MasterConfig
from eva_master.model.catalog import Catalog, Offering
from eva_wire.values.errors import InvalidConfig

BUILT_IN_REGION = "us-east-1"
"""Region whose prices come with the project."""
_OLD_DAYS = 30

_log = structlog.get_logger(__name__)


def section_of(config: MasterConfig) -> Ec2Section:
    """The section ``ec2``; raises `InvalidConfig` if there is none."""
    section: Ec2Section | None = config.section("ec2")
    if section is None:
        raise InvalidConfig("there is no section ec2", hint="ec2: {region: us-east-1, ...}")
    return section


def ec2_settings(config: MasterConfig) -> Ec2Settings:
    """The adapter's share of the settings."""
    section = section_of(config)
    return Ec2Settings(
        cluster=config.cluster,
        region=section.region,
        images={**IMAGES, **section.images},
        subnets=section.subnets,
        security_groups=section.security_groups,
        instance_profile=section.instance_profile,
        launch_template=section.launch_template or "",
        root_volume_gib=section.root_volume // 1024,
        kms_key=section.kms_key,
        tags=section.tags,
        endpoint=section.endpoint,
        poll_s=section.poll / 1000,
        spot_prices_s=section.spot.prices / 1000 if section.spot else 0.0,
    )


def snapshot_file(config: MasterConfig) -> Path:
    """Where the snapshot of what EC2 sells is."""
    return section_of(config).snapshot or config.state_dir / "catalog.json"


def ask_what_is_sold(config: MasterConfig, tell: Callable[[str], None]) -> None:
    """Have a snapshot where one is needed and none was taken.

    That is where no prices come with the project, and where spot instances are to be bought.

    Args:
        config: The settings.
        tell: Told what is asked, and what came of it.

    Raises:
        CloudError: AWS does not say.
    """
    section, path = section_of(config), snapshot_file(config)
    if path.exists() or (section.region == BUILT_IN_REGION and section.spot is None):
        return
    names = config.catalog.only or sorted({name.partition(".")[0] for name in current_types()})
    tell(f"Asking what EC2 sells in {section.region} of {', '.join(names)}.")
    taken = take_snapshot(ec2_settings(config), architectures=section.architectures, names=names)
    taken.write(path)
    tell(f"EC2 sells {len(taken.types)} types; {path} says so.")


def snapshot_of(config: MasterConfig) -> CatalogSnapshot | None:
    """EC2's offerings by the last update; `None` for the built-in ones.

    Raises:
        InvalidConfig: The snapshot cannot be read, is another region's, or nothing comes with the
            project.
    """
    path, region = snapshot_file(config), section_of(config).region
    snapshot = read_snapshot(path)
    hint = "run: eva catalog update"
    if snapshot is None:
        if region != BUILT_IN_REGION:
            raise InvalidConfig(f"nobody knows what EC2 sells in {region}", hint=hint)
        return None
    if snapshot.region != region:
        raise InvalidConfig(f"{path} is of {snapshot.region}, not of {region}", hint=hint)
    if (age := (datetime.now(UTC) - snapshot.taken).days) > _OLD_DAYS:
        _log.warning("prices are old", file=str(path), days=age, hint=hint)
    return snapshot


def ec2_catalog(config: MasterConfig) -> Catalog:
    """Offerings that the master may buy.

    Raises:
        InvalidConfig: The files are wrong, or nothing is left.
    """
    section = section_of(config)
    snapshot = snapshot_of(config)
    entries = current_types() if snapshot is None else snapshot.entries()
    types = load_catalog(config.catalog.file, config.catalog.only, entries)
    types = tuple(_sellable(types, _named(config), ec2_settings(config).images))
    choice = TypeFilter(architectures=section.architectures, max_price=section.max_price)
    life = section.spot.expected_life if section.spot else None
    catalog = on_sale(
        types, snapshot, choice, PurchaseTerms(section.used_zones, section.discounts, life)
    )
    if not catalog:
        raise InvalidConfig(
            f"nothing is for sale in {', '.join(section.used_zones)}",
            hint="see ec2.zones, ec2.architectures, ec2.max_price and catalog.only",
        )
    return catalog


def _named(config: MasterConfig) -> frozenset[str]:
    """The types and families that the operator has asked for by name."""
    file = config.catalog.file
    return frozenset(config.catalog.only or ()) | (named_in(file) if file else frozenset())


def _sellable(
    types: Catalog, named: frozenset[str], images: Mapping[str, str]
) -> Iterator[Offering]:
    """The types that may be bought without harm.

    Types that are merely on the list are left out if their image has no driver for their GPUs, or
    if what they really cost depends on how much they compute.

    Raises:
        InvalidConfig: The operator asks by name for types that could not become workers.
    """
    dead: set[str] = set()
    for offering in types:
        machine = offering.type
        asked = not named.isdisjoint({machine.name, machine.family})
        image = image_name(images, machine)
        if image is not None and not drives(image, machine):
            dead |= {machine.family} if asked else set()
        elif asked or not is_burstable(machine.name):
            yield for_tasks(offering)
    if dead:
        first = min(dead)
        raise InvalidConfig(
            f"the image has no driver for the GPUs of {', '.join(sorted(dead))}: "
            "its instances would never become workers",
            hint=f"name an image that has one in ec2.images.{first}, or leave {first} out",
        )


def ec2_cloud(config: MasterConfig, site: CloudSite) -> Ec2Cloud:
    """The cloud of an account's instances."""
    boot = boot_of(config)
    return Ec2Cloud(
        site.inbox,
        site.clock,
        ec2_settings(config),
        user_data=lambda launch: user_data(boot, site.bootstrap, launch),
        launch_records=LaunchTable(site.engine),
        catalog=site.catalog,
    )


def boot_of(config: MasterConfig) -> Boot:
    """The boot settings of all instances of the cluster."""
    section = section_of(config)
    return Boot(
        region=section.region,
        bundles={str(kind): place for kind, place in section.bundles.items()},
        boot_logs=boot_logs(config.objects_url),
        s3_endpoint=s3_endpoint(config.objects_url),
        docker_image=section.docker_image,
        mount_command=section.mount_command,
        storage_mount=section.storage_mount,
        abandoned_after_s=section.abandoned_after // 1000,
        boot_limit_min=-(-section.boot_limit // 60_000),
        metadata_endpoint=section.metadata_endpoint or METADATA_URL,
        worker_env=tuple(sorted(section.worker_env.items())),
    )
