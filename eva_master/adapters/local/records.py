"""The local cloud's records of its instances, in files of its own."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from eva_master.model.actions import LaunchInstance
from eva_master.model.catalog import Purchase
from eva_master.model.resources import Resources
from eva_wire.values.ids import InstanceId, Millis, Price

_FILE = "record.json"


@dataclass(frozen=True, slots=True)
class HostRecord:
    """The record of one instance.

    The instance is pending until it has a host process, up until it is gone, and neither if
    `failed`.

    Attributes:
        attempt: Launch attempt, 0 if it was only ever asked to be terminated.
        type: Name of the instance type.
        price: Micro-dollars per hour.
        requested_ms: When the launch was requested.
        pid: Pid of the host process.
        birth: Distinguishes that process from a later one with the same pid; see `processes.birth`.
        up_ms: When the host process was started.
        gone_ms: When everything on the instance was dead, or the launch was called off.
        failed: Why it could not be launched.
        engine: URL of the Docker engine that its tasks run in, empty for plain processes.
        purchase: Whether it was bought on demand or on the spot market.
        reclaimed: Whether it is gone because the cloud took it back.
    """

    instance: InstanceId
    attempt: int
    type: str
    price: Price
    capacity: Resources
    requested_ms: Millis
    pid: int | None = None
    birth: str | None = None
    up_ms: Millis | None = None
    gone_ms: Millis | None = None
    failed: str = ""
    engine: str = ""
    purchase: Purchase = Purchase.ON_DEMAND
    reclaimed: bool = False

    @classmethod
    def of_launch(cls, action: LaunchInstance, now: Millis) -> HostRecord:
        """The record of a launch, before anything is done."""
        kind = action.offering.type
        return cls(
            action.instance,
            action.attempt,
            kind.name,
            action.offering.price,
            kind.capacity,
            now,
            purchase=action.offering.purchase,
        )

    @classmethod
    def of_unknown(cls, instance: InstanceId, now: Millis) -> HostRecord:
        """The record of an instance that was terminated before it ever existed."""
        return cls(instance, 0, "", Price(0), Resources(), now, gone_ms=now)

    @property
    def refused(self) -> bool:
        """Whether its last launch failed; another attempt may succeed."""
        return bool(self.failed) and self.gone_ms is None

    @property
    def closed(self) -> bool:
        """Whether it is gone or failed, so that nothing happens to it by itself."""
        return self.gone_ms is not None or self.refused

    @property
    def is_spot(self) -> bool:
        """Whether the cloud may take it back."""
        return self.purchase is Purchase.SPOT


class HostRecords:
    """The records below a directory, one file each.

    Args:
        root: Holds a directory per instance.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def directory(self, instance: InstanceId) -> Path:
        """Where the instance's record, logs and disk are."""
        return self.root / instance

    def read(self) -> dict[InstanceId, HostRecord]:
        """Read all records from their files."""
        records = (_decoded(path.read_text()) for path in sorted(self.root.glob(f"*/{_FILE}")))
        return {record.instance: record for record in records}

    def write(self, record: HostRecord) -> None:
        """Replace the record of an instance durably; it survives a power cut.

        Raises:
            OSError: The record could not be written; the old one remains.
        """
        directory = self.directory(record.instance)
        directory.mkdir(mode=0o700, exist_ok=True)
        aside = directory / f".{_FILE}.tmp"
        with aside.open("w") as file:
            json.dump(asdict(record), file)
            file.flush()
            os.fsync(file.fileno())
        aside.rename(directory / _FILE)
        for changed in (directory, self.root):
            _sync(changed)


def _decoded(text: str) -> HostRecord:
    data: dict[str, Any] = json.loads(text)
    data["capacity"] = Resources(**data["capacity"])
    # Records of earlier releases do not say.
    data["purchase"] = Purchase(data.get("purchase", Purchase.ON_DEMAND))
    return HostRecord(**data)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
