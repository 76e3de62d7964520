"""The labels by which a worker knows its containers."""

from __future__ import annotations

from pathlib import Path

COPY, ATTEMPT = "eva.copy", "eva.attempt"
_INSTANCE, _HOME = "eva.instance", "eva.home"


def labels_of(instance: str, root: Path) -> dict[str, str]:
    """The labels of all containers of a worker.

    Two clusters may use the same instance id: the directory of the records tells them apart.

    Args:
        instance: The instance's id.
        root: The directory of the runtime's records.
    """
    return {_INSTANCE: instance, _HOME: str(root.absolute())}
