"""The feed of events: what users are told happened, one sentence each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from eva_wire.values.ids import InstanceId, JobId, Millis


class FeedKind(StrEnum):
    """Kinds of events, for filters and colours."""

    SUBMITTED = "submitted"
    PLACED = "placed"
    """A task starts on an instance."""
    MOVED = "moved"
    """A task left an instance for another one, or a job its partition."""
    FAILED = "failed"
    """An attempt failed, or a job has."""
    LOST = "lost"
    """An attempt ended with its instance."""
    SUSPENDED = "suspended"
    RESUMED = "resumed"
    SUCCEEDED = "succeeded"
    CANCELLED = "cancelled"
    BUDGET = "budget"
    """An owner, a tenant or a partition has spent its limit of a month, or most of it."""
    CAPPED = "capped"
    """A job has come to its `max_cost`, or near to it."""
    LATE = "late"
    """A deadline has passed before the end of its job."""
    LAUNCHING = "launching"
    UP = "up"
    """The cloud bills an instance, or an owned node has joined."""
    REFUSED = "refused"
    """The cloud launches no instance of an offering."""
    DRAINING = "draining"
    REVOKED = "revoked"
    """The cloud takes an instance back."""
    GONE = "gone"
    CATALOG = "catalog"
    """Offerings or their prices have changed, or the cloud does not say what it sells."""
    LEADER = "leader"
    """A master has taken charge of the cluster."""


@dataclass(frozen=True, slots=True)
class FeedEvent:
    """One event.

    Attributes:
        number: Place in the feed, from 1; numbers only grow.
        job: The job that it is about; empty if it is about none.
        task: The task run, where it is about one task.
        instance: The instance that it is about; empty if it is about none.
        owner: Owner of the job, or the one whose limit it is about; else empty.
        text: A sentence for the user, without job, task and instance.
        failure: Which failure of its task or gang it tells, from 1; 0 for all other events, the end
            of a failed job among them.
    """

    number: int
    at_ms: Millis
    kind: FeedKind
    job: JobId | str = ""
    task: str = ""
    instance: InstanceId | str = ""
    owner: str = ""
    text: str = ""
    failure: int = 0
