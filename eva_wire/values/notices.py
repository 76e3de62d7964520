"""Topics of notices, for job files and settings."""

from __future__ import annotations

from enum import StrEnum


class Topic(StrEnum):
    """A kind of news that receivers of notices may be told of."""

    END = "end"
    """A job has ended, in whatever way."""
    FAILURE = "failure"
    """An attempt has failed, or the job has."""
    LATE = "late"
    """A deadline has passed before the end of its job."""
    CAPPED = "capped"
    """A job has come to its `max_cost`, or near to it."""
    BUDGET = "budget"
    """An owner, a tenant or a partition has spent its limit of a month, or most of it."""
    SUSPENDED = "suspended"
    """A job rests."""
    REFUSED = "refused"
    """The cloud launches no instance of an offering."""
    REVOKED = "revoked"
    """The cloud takes an instance back."""
    LEADER = "leader"
    """A master has taken charge of the cluster."""


OF_JOB_FILES = (Topic.END, Topic.FAILURE, Topic.LATE, Topic.CAPPED)
"""Topics that job files may ask for."""
