"""What was asked of EC2, written down before it is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from eva_master.model.ids import InstanceId


class LaunchRecords(Protocol):
    """Parameters of launches whose instance no listing has shown yet; any thread may call.

    EC2 takes a client token again only with the very same parameters. Settings and images may have
    changed by the time a launch is repeated, so it is repeated as it was written down.
    """

    def remember(
        self, instance: InstanceId, attempt: int, request: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Write a launch down, unless it is; returns what is written.

        Raises:
            StorageError: Nothing is, so nothing may be asked.
        """
        ...

    def remembered(self, instance: InstanceId, attempt: int) -> dict[str, Any] | None:
        """What is written of a launch, `None` if nothing is.

        Raises:
            StorageError: Nobody knows.
        """
        ...

    def forget(self, instances: Iterable[InstanceId]) -> None:
        """Remove all of these instances.

        Raises:
            StorageError: They are still there.
        """
        ...


class ShortMemory:
    """Launches that nobody will repeat after a restart, as in a test."""

    def __init__(self) -> None:
        self._written: dict[tuple[InstanceId, int], dict[str, Any]] = {}

    def remember(
        self, instance: InstanceId, attempt: int, request: Mapping[str, Any]
    ) -> dict[str, Any]:
        """See `LaunchRecords.remember`."""
        return self._written.setdefault((instance, attempt), dict(request))

    def remembered(self, instance: InstanceId, attempt: int) -> dict[str, Any] | None:
        """See `LaunchRecords.remembered`."""
        return self._written.get((instance, attempt))

    def forget(self, instances: Iterable[InstanceId]) -> None:
        """See `LaunchRecords.forget`."""
        gone = set(instances)
        for key in [key for key in self._written if key[0] in gone]:
            del self._written[key]
