"""Limits that partitions share: who uses them, and who is next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eva_client.cli.views.words import plain
from eva_wire.rpc.messages import ClusterState, QueuedJob, SharedLimit

_JOBS_TOLD = 5
"""Of so many jobs that wait the names are told in a line."""


def rows(message: ClusterState) -> Iterator[tuple[str, str]]:
    """One row per limit, for a table of facts."""
    for limit in message.shared_limits:
        yield "shared limit", f"{plain(limit.name)}: {_used(limit)}{_waiting(limit)}"


def _used(limit: SharedLimit) -> str:
    most = f" of {limit.most:,}" if limit.HasField("most") else ""
    what = " GPUs" if limit.kind == "tenant" else ""
    parts = ", ".join(f"{plain(name)} {count:,}" for name, count in sorted(limit.used_by.items()))
    return f"{limit.used:,}{most}{what} in use{f' ({parts})' if parts else ''}"


def _waiting(limit: SharedLimit) -> str:
    if not limit.waiting:
        return ""
    names = ", ".join(_job(job) for job in limit.waiting[:_JOBS_TOLD])
    rest = len(limit.waiting) + limit.more - _JOBS_TOLD
    return f"; next: {names}" + (f" and {rest:,} more" if rest > 0 else "")


def _job(job: QueuedJob) -> str:
    tasks = f", {job.tasks:,} tasks" if job.tasks > 1 else ""
    priority = f", priority {job.priority:,}" if job.priority else ""
    return f"{plain(job.job)} ({plain(job.partition)}{priority}{tasks})"


def shape(limit: SharedLimit) -> dict[str, Any]:
    """A limit as JSON, for programs."""
    return {
        "limit": limit.name,
        "kind": limit.kind,
        "about": limit.about or None,
        "used": limit.used,
        "most": limit.most if limit.HasField("most") else None,
        "used_by": dict(sorted(limit.used_by.items())),
        "waiting": [
            {
                "job": job.job,
                "partition": job.partition,
                "priority": job.priority,
                "tasks": job.tasks,
                "since_ms": job.since_ms,
            }
            for job in limit.waiting
        ],
        "more_waiting": limit.more,
    }
