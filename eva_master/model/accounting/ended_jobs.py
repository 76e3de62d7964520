"""Outcomes of jobs that are over, until a plan that knows of them is in force."""

from __future__ import annotations

from dataclasses import dataclass

from eva_wire.values.ids import JobId


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job that is over, for policies that settle accounts between tenants.

    Attributes:
        job: Its id.
        tenant: The tenant that the job is accounted to.
        partition: Where it ran; empty for a cluster that is not divided.
        at_ms: When it ended, or was moved to another partition.
        succeeded: Whether it succeeded. Else it failed, was cancelled or was moved.
        gpu_ms: The time for which it had GPUs, summed over them, in milliseconds.
        start_ms: How long the last start of one of its tasks took.
    """

    job: JobId
    tenant: str
    partition: str
    at_ms: int
    succeeded: bool
    gpu_ms: int = 0
    start_ms: int = 0
