"""A master's EC2: what its settings come to."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import structlog

from eva_master.adapters.catalog import current_types, load_catalog, named_in
from eva_master.adapters.catalog.market import PurchaseTerms, TypeFilter, on_sale
from eva_master.adapters.catalog.snapshot import CatalogSnapshot, read_snapshot
from eva_master.adapters.ec2 import Ec2Cloud, Ec2Settings
from eva_master.adapters.ec2.launching.images import drives, least_gib, narrowest
from eva_master.adapters.ec2.launching.userdata import Boot, user_data
from eva_master.adapters.ec2.memory import for_tasks
from eva_master.adapters.ec2.offerings import ADDRESS_HOUR, GIB_MONTH, is_burstable, take_snapshot
from eva_master.adapters.ec2.settings import IMAGES, VOLUMES
from eva_master.adapters.identities.prover import IdentityProver
from eva_master.adapters.identities.sts import Sts
from eva_master.adapters.loop.clock import SystemClock
from eva_master.adapters.store.launches import LaunchTable
from eva_master.app.cloud_provider import CloudSite
from eva_master.app.clouds.ec2.section import Ec2Section, boot_logs, s3_endpoint
from eva_master.app.config import MasterConfig
from eva_master.model.catalog import Attached, Catalog, Offering
from eva_wire.values.errors import CloudError, InvalidConfig

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
        root_volumes={**VOLUMES, **{key: mib // 1024 for key, mib in section.root_volume.items()}},
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
    """Have a snapshot of what is sold, with its zones and spot prices; see `list_catalog`.

    Args:
        config: The settings.
        tell: Told what is asked, and what came of it.

    Raises:
        CloudError: AWS does not say, and neither a snapshot nor prices that come with the project
            are there to go by.
    """
    section, path = section_of(config), snapshot_file(config)
    if path.exists():
        return
    tell(f"Asking what EC2 sells in {section.region} of {', '.join(_names(config))}.")
    try:
        catalog = list_catalog(config, threading.Event())
        types = {offering.type.name for offering in catalog}
        tell(f"EC2 sells {len(types)} types; {path} says so.")
    except CloudError as error:
        if section.region != BUILT_IN_REGION:
            raise
        _log.error(
            "EC2 does not say what it sells: prices that come with the project are used, and no "
            "spot instances are bought",
            error=error.message,
            hint=error.hint,
        )


def list_catalog(config: MasterConfig, closing: threading.Event) -> Catalog:
    """Ask what EC2 sells, and write it down for the next start.

    Types that it no longer sells stay in the snapshot, sold nowhere: settings may name them.

    Args:
        config: The settings.
        closing: Set if the answer is not wanted any more.

    Raises:
        CloudError: AWS does not say.
        InvalidConfig: Nothing is left to buy; the snapshot stays as it is.
        OSError: The snapshot cannot be written.
    """
    section, path = section_of(config), snapshot_file(config)
    sold = take_snapshot(
        ec2_settings(config),
        architectures=section.architectures,
        names=_names(config),
        closing=closing,
    )
    before = read_snapshot(path)
    gone = {} if before is None else {name: kind.gone for name, kind in before.types.items()}
    snapshot = sold.model_copy(update={"types": {**gone, **sold.types}})
    catalog = _catalog(config, snapshot)
    snapshot.write(path)
    return catalog


def _names(config: MasterConfig) -> Sequence[str]:
    """Names of the types or families to ask for."""
    return config.catalog.only or sorted({name.partition(".")[0] for name in current_types()})


def catalog_age_ms(config: MasterConfig) -> int | None:
    """How long ago EC2 said what it sells; `None` if it never did."""
    snapshot = read_snapshot(snapshot_file(config))
    if snapshot is None:
        return None
    return max(0, (datetime.now(UTC) - snapshot.taken) // timedelta(milliseconds=1))


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
    return _catalog(config, snapshot_of(config))


def _catalog(config: MasterConfig, snapshot: CatalogSnapshot | None) -> Catalog:
    section = section_of(config)
    life = section.spot.expected_life if section.spot else None
    terms = PurchaseTerms(
        section.used_zones, section.discounts, life, private_zones=section.private_zones
    )
    catalog = on_sale(types_of(config, snapshot), snapshot, TypeFilter(), terms)
    if not catalog:
        raise InvalidConfig(
            f"nothing is for sale in {', '.join(section.used_zones)}",
            hint="see ec2.zones, ec2.architectures, ec2.max_price and catalog.only",
        )
    return catalog


def types_of(config: MasterConfig, snapshot: CatalogSnapshot | None) -> Catalog:
    """An offering of each type that the settings admit, wherever it is sold.

    Args:
        config: The settings.
        snapshot: The types that EC2 sells, `None` for types and prices that come with the project.

    Raises:
        InvalidConfig: The files are wrong, or the settings name types of no use.
    """
    section = section_of(config)
    entries = current_types() if snapshot is None else snapshot.entries()
    types = load_catalog(config.catalog.file, config.catalog.only, entries)
    choice = TypeFilter(architectures=section.architectures, max_price=section.max_price)
    rates = Attached(
        gib_month=(snapshot and snapshot.gib_month) or GIB_MONTH,
        address=ADDRESS_HOUR if section.public_addresses else 0,
    )
    settings = ec2_settings(config)
    sellable = _sellable(types, _named(config), settings, rates)
    chosen = tuple(sold for sold in sellable if choice.admits(sold.type, sold.price))
    for offering in chosen:
        _check_volume(offering, settings)
    return chosen


def _named(config: MasterConfig) -> frozenset[str]:
    """The types and families that the operator has asked for by name."""
    file = config.catalog.file
    return frozenset(config.catalog.only or ()) | (named_in(file) if file else frozenset())


def _sellable(
    types: Catalog, named: frozenset[str], settings: Ec2Settings, rates: Attached
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
        image = narrowest(settings.images, machine)
        if image is not None and not drives(image, machine):
            dead |= {machine.family} if asked else set()
        elif asked or not is_burstable(machine.name):
            gib = narrowest(settings.root_volumes, machine) or 0
            yield for_tasks(offering, replace(rates, root_gib=gib))
    if dead:
        first = min(dead)
        raise InvalidConfig(
            f"the image has no driver for the GPUs of {', '.join(sorted(dead))}: "
            "its instances would never become workers",
            hint=f"name an image that has one in ec2.images.{first}, or leave {first} out",
        )


def _check_volume(offering: Offering, settings: Ec2Settings) -> None:
    machine, gib = offering.type, offering.attached.root_gib
    least = least_gib(narrowest(settings.images, machine) or "")
    if gib < least:
        raise InvalidConfig(
            f"ec2.root_volume: {gib}GiB is less than the image of {machine.family} has: {least}GiB",
            hint=f"write root_volume: {{{machine.family}: {least}GiB}}, or leave it out in "
            "catalog.only",
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
        ask=lambda closing: list_catalog(config, closing),
    )


def identity_prover(config: MasterConfig, authority: str) -> IdentityProver | None:
    """Lets the identities in that the settings list; `None` if they list none."""
    section = section_of(config)
    if not section.identities:
        return None
    entries = [identity.entry for identity in section.identities]
    sts = Sts(section.region, section.endpoint)
    wall = SystemClock().now
    return IdentityProver(config.cluster, authority, sts=sts, entries=entries, wall=wall)


def boot_of(config: MasterConfig) -> Boot:
    """The boot settings of all instances of the cluster."""
    section = section_of(config)
    return Boot(
        region=section.region,
        bundles={str(kind): place for kind, place in section.bundles.items()},
        boot_logs=boot_logs(config.objects_url),
        s3_endpoint=s3_endpoint(config.objects_url),
        mount_command=section.mount_command,
        boot_limit_min=-(-section.boot_limit // 60_000),
        worker_env=section.worker_variables(),
    )
