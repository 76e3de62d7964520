"""The cloud whose instances are EC2's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from eva_master.app.cloud_provider import (
    CloudProvider,
    CloudSite,
    Complaint,
    ManagedCloud,
    Prepared,
)

if TYPE_CHECKING:
    from eva_master.adapters.identities.prover import IdentityProver
    from eva_master.app.config import MasterConfig
    from eva_master.control.settings import Settings
    from eva_master.model.catalog import Catalog

_COMMANDS = "eva_master.app.clouds.ec2.commands"


class _Ec2(CloudProvider):
    """See `CloudProvider`."""

    name = "ec2"
    flags: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "--ec2-region": {"metavar": "REGION", "help": "Region of EC2."}
    }
    commands: ClassVar[Mapping[str, str]] = {
        "catalog update": f"{_COMMANDS}:update",
        "deploy aws": f"{_COMMANDS}:aws",
    }
    ends_with_master = False

    def section(self) -> tuple[Any, Any]:
        from eva_master.app.clouds.ec2.section import Ec2Section

        return Ec2Section | None, None

    def complaints(self, config: MasterConfig) -> Iterator[Complaint]:
        from eva_master.app.clouds.ec2.section import complaints

        section = config.section(self.name)
        return complaints(section, config.objects, config.listen, config.advertise)

    def check(self, config: MasterConfig) -> None:
        """The section is checked when it is read."""

    def prepare(self, config: MasterConfig, tell: Callable[[str], None]) -> Prepared:
        _wiring().ask_what_is_sold(config, tell)
        return Prepared(config)

    def catalog(self, config: MasterConfig) -> Catalog:
        sold: Catalog = _wiring().ec2_catalog(config)
        return sold

    def prices_taken(self, config: MasterConfig) -> str | None:
        snapshot = _wiring().snapshot_of(config)
        return None if snapshot is None else snapshot.taken.isoformat()

    def loop_settings(self, config: MasterConfig, settings: Settings) -> Settings:
        from eva_master.app.clouds.ec2.section import SpotSection

        section = _wiring().section_of(config)
        own = section.snapshot is None and section.catalog_period > 0
        return replace(
            settings,
            catalog_period_ms=section.catalog_period if own else None,
            catalog_age_ms=_wiring().catalog_age_ms(config) if own else None,
            unwanted_ms=section.unwanted_grace,
            rebalance_ms=(section.spot or SpotSection()).rebalance,
        )

    def shares_storage(self, config: MasterConfig) -> bool:
        return bool(_wiring().section_of(config).storage_mount)

    def runs_containers(self, config: MasterConfig) -> bool:  # noqa: ARG002
        # The workers choose their tasks' runtime.
        return True

    def identities(self, config: MasterConfig, authority: str) -> IdentityProver | None:
        from eva_master.app.clouds.ec2.wiring import identity_prover

        return identity_prover(config, authority)

    def open(self, config: MasterConfig, site: CloudSite) -> ManagedCloud:
        cloud: ManagedCloud = _wiring().ec2_cloud(config, site)
        return cloud


def _wiring() -> ModuleType:
    """Imported late, as boto3 is slow to import."""
    from eva_master.app.clouds.ec2 import wiring

    return wiring


PROVIDER = _Ec2()
