"""A snapshot of a cloud's instance types and prices on a certain day."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from eva_master.adapters.catalog.gpus import GPUS
from eva_wire.values.errors import InvalidConfig
from eva_wire.values.ids import MILLION

_HINT = "make it anew: eva catalog update"


class SoldType(BaseModel):
    """One instance type.

    Attributes:
        gpu: Name of its GPUs; empty if it has none.
        price: On demand, in micro-dollars per hour.
        zones: Where it is sold.
        spot: Price on the spot market by zone, in micro-dollars per hour.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    architecture: str
    milli_cpus: int = Field(gt=0)
    memory_mib: int = Field(gt=0)
    gpus: int = Field(default=0, ge=0)
    gpu: str = ""
    price: int = Field(gt=0)
    zones: tuple[str, ...] = ()
    spot: dict[str, int] = {}

    @property
    def gone(self) -> SoldType:
        """The type when it is sold nowhere any more."""
        return self.model_copy(update={"zones": (), "spot": {}})

    def entry(self) -> dict[str, Any]:
        """The type in the format of a catalog file."""
        gpu = {"gpu": self.gpu} if self.gpus and self.gpu in GPUS else {}
        return {
            **gpu,
            "gpus": self.gpus,
            "cpus": self.milli_cpus / 1000,
            "memory": f"{self.memory_mib}MiB",
            "architecture": self.architecture,
            "price": f"${Decimal(self.price) / MILLION:f}/h",
        }


class CatalogSnapshot(BaseModel):
    """The instance types of a region that were asked for.

    Attributes:
        version: Version of the file format.
        taken: When it was taken.
        gib_month: Price of a GiB of volume a month, in micro-dollars; 0 if it is not known.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: int = Field(default=1, ge=1, le=1)
    region: str
    taken: datetime
    types: dict[str, SoldType]
    gib_month: int = Field(default=0, ge=0)

    def entries(self) -> Mapping[str, dict[str, Any]]:
        """The types in the format of a catalog file."""
        return {name: sold.entry() for name, sold in self.types.items()}

    def changes_since(self, before: CatalogSnapshot | None) -> dict[str, list[str]]:
        """Types that are new, gone, or have another price."""
        old = before.types if before is not None else {}
        kept = self.types.keys() & old.keys()
        return {
            "new": sorted(self.types.keys() - old.keys()),
            "gone": sorted(old.keys() - self.types.keys()),
            "repriced": sorted(name for name in kept if self.types[name].price != old[name].price),
        }

    def write(self, path: Path) -> None:
        """Replace a file atomically by this snapshot."""
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f"{path.name}.part")
        partial.write_text(self.model_dump_json(indent=1), encoding="utf-8")
        partial.replace(path)


def read_snapshot(path: Path) -> CatalogSnapshot | None:
    """Read a snapshot, `None` if there is no such file.

    Raises:
        InvalidConfig: The file is not a snapshot of this release.
    """
    try:
        return CatalogSnapshot.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidConfig(f"{path}: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InvalidConfig(f"{path}: {where}: {first['msg']}", hint=_HINT) from error
