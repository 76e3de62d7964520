"""The cloud whose instances are emulated on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click

from eva_master.app.cloud_provider import (
    CloudProvider,
    CloudSite,
    Complaint,
    ManagedCloud,
    Prepared,
)

if TYPE_CHECKING:
    from eva_master.app.config import MasterConfig
    from eva_master.control.settings import Settings
    from eva_master.model.catalog import Catalog


class _Local(CloudProvider):
    """See `CloudProvider`."""

    name = "local"
    flags: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "--local-runtime": {
            "type": click.Choice(["auto", "process", "docker"]),
            "help": "What tasks of emulated instances run in.",
        }
    }
    ends_with_master = True

    def section(self) -> tuple[Any, Any]:
        from eva_master.app.clouds.local.section import LocalSection

        return LocalSection, LocalSection()

    def complaints(self, config: MasterConfig) -> Iterator[Complaint]:
        from eva_master.app.clouds.local.offerings import complaints

        return complaints(config)

    def check(self, config: MasterConfig) -> None:
        pass

    def prepare(self, config: MasterConfig, tell: Callable[[str], None]) -> Prepared:
        from eva_master.app.clouds.local.containers import settled

        prepared, note = settled(config, tell)
        if self.has_nominal_gpus(prepared):
            note += " This machine has no GPUs: those of emulated instances are nominal."
        return Prepared(prepared, note)

    def catalog(self, config: MasterConfig) -> Catalog:
        from eva_master.app.clouds.local.offerings import local_catalog

        return local_catalog(config)

    def prices_taken(self, config: MasterConfig) -> str | None:  # noqa: ARG002
        return None

    def loop_settings(self, config: MasterConfig, settings: Settings) -> Settings:
        from eva_master.app.clouds.local.section import section_of

        most = min(settings.limits.instances, section_of(config).max_instances)
        limits = replace(settings.limits, instances=most)
        return replace(settings, unwanted_ms=0, rebalance_ms=0, limits=limits)

    def has_nominal_gpus(self, config: MasterConfig) -> bool:  # noqa: ARG002
        return not any(Path("/dev").glob("nvidia[0-9]*"))

    def runs_containers(self, config: MasterConfig) -> bool:
        from eva_master.app.clouds.local.section import section_of

        return section_of(config).runtime == "docker"

    def open(self, config: MasterConfig, site: CloudSite) -> ManagedCloud:
        from eva_master.app.clouds.local.wiring import local_cloud

        return local_cloud(config, site.inbox, site.clock, site.bootstrap)


PROVIDER = _Local()
