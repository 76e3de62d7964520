"""Values: limits that partitions share, as users see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from eva_wire.values.ids import JobId, Millis


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job that waits for a shared limit.

    Attributes:
        tasks: How many of its tasks wait.
        since_ms: Since when the first of them does.
    """

    job: JobId
    partition: str
    priority: int
    tasks: int
    since_ms: Millis


@dataclass(frozen=True, slots=True)
class SharedLimit:
    """A limit that partitions share.

    Attributes:
        name: Name of the limit, in words.
        kind: An offering's, the cloud's, that of all instances, a user's or a tenant's.
        about: The offering, user or tenant; empty for all instances.
        used: How much of it is in use: instances, or GPUs of a tenant.
        most: How much there is; `None` if only the cloud knows.
        used_by: Instances in use, by partition; empty for a tenant's GPUs.
        waiting: Jobs that wait for it, in order, the first of them.
        more: How many jobs wait beside these.
    """

    name: str
    kind: str
    about: str
    used: int
    most: int | None
    used_by: Mapping[str, int]
    waiting: tuple[QueuedJob, ...]
    more: int = 0
