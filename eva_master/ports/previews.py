"""Outlook of a job that is not submitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from eva_master.model.catalog import Offering
from eva_master.model.planning.job_view import JobView
from eva_master.model.planning.plan import Plan, PolicyMemory, Suspend
from eva_master.model.planning.reasons import Reasons
from eva_master.model.planning.snapshot import Snapshot
from eva_wire.values.errors import EvaError
from eva_wire.values.ids import InstanceId, JobId, RunId

NO_REASONS = Reasons()
Where = InstanceId | int
"""A live instance, or a new one by its key in a plan."""


@dataclass(frozen=True, slots=True)
class Foreseen:
    """Outlook of a job that is not submitted.

    Attributes:
        snapshot: The cluster once it is.
        job: The job there; `None` if no plan would be about it yet.
        runs: Its task runs that a plan would be about.
        before: Where each task run is.
        places: Where each would be.
        waiting: Why others would wait.
        offerings: Offerings of live instances, and of new ones by key, at the prices that are
            billed.
        stays: Instances that would stand in pools, and so stay though they are empty.
        suspends: Task runs that would be suspended.
        reasons: Reasons of the policy.
    """

    snapshot: Snapshot
    job: JobView | None
    runs: tuple[RunId, ...]
    before: Mapping[RunId, str]
    places: Mapping[RunId, Where]
    waiting: Mapping[RunId, str]
    offerings: Mapping[Where, Offering]
    stays: frozenset[Where]
    suspends: tuple[Suspend, ...] = ()
    reasons: Reasons = NO_REASONS


class JobPreview(Protocol):
    """The submission of a job, followed on a copy."""

    @property
    def job(self) -> JobId:
        """The id that it would get."""
        ...

    @property
    def partition(self) -> str:
        """Where it would run; empty if the cluster is not divided."""
        ...

    @property
    def refused(self) -> EvaError | None:
        """Why its submission would be refused; `None` if it would not."""
        ...

    @property
    def question(self) -> Snapshot | None:
        """Snapshot that the policy would be asked about; `None` if no plan is needed."""
        ...

    @property
    def memory(self) -> PolicyMemory | None:
        """Memory that the policy has of earlier rounds."""
        ...

    def foreseen(self, plan: Plan | None) -> Foreseen:
        """Outlook of the job, once the policy has answered; takes time."""
        ...
