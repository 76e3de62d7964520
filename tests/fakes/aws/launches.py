"""Records of launches that end with the master."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from eva_wire.values.ids import InstanceId


class ShortMemory:
    """Records in memory, for launches that no other master repeats."""

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
