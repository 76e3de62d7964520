"""Records of launches, written before the cloud is called."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from eva_wire.values.ids import InstanceId


class LaunchRecords(Protocol):
    """Parameters of launches whose instance was not listed yet. Any thread may call.

    A cloud accepts a token again only with the same parameters. Settings and images may have
    changed when a launch is repeated, so it is repeated with the recorded parameters.
    """

    def remember(
        self, instance: InstanceId, attempt: int, request: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Record a launch unless it is recorded; returns the recorded parameters.

        Raises:
            StorageError: The launch is not recorded, so the cloud must not be called.
        """
        ...

    def remembered(self, instance: InstanceId, attempt: int) -> dict[str, Any] | None:
        """The recorded parameters of a launch; `None` if there are none.

        Raises:
            StorageError: The records cannot be read.
        """
        ...

    def forget(self, instances: Iterable[InstanceId]) -> None:
        """Remove the records of all of these instances.

        Raises:
            StorageError: The records are still there.
        """
        ...
