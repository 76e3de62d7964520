"""Suspensions: tasks that were stopped from a checkpoint and wait, and who wants that."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from eva_wire.values.ids import JobId, Millis


class Suspender(StrEnum):
    """Cause of the suspension of a job or a task run."""

    COST = "cost"
    """Suspended by the master since it has come to its `max_cost`, until a user raises that."""
    MONTH = "month"
    """Suspended by the master since its owner has come to `limits.max_cost`, until the next month
    or until the operator raises that."""
    USER = "user"
    """Suspended by a user, until a user resumes it."""
    POLICY = "policy"
    """Suspended by a plan, until the policy gives it a place again."""
    PRIORITY = "priority"
    """Suspended to make room for a job of higher priority, until there is room."""


class Preemption(StrEnum):
    """Treatment of running jobs of lower priority by a job that waits."""

    NEVER = "never"
    """Leave them alone: the job is the first to get room that becomes free."""
    SUSPEND = "suspend"
    """Suspend as many as the job needs."""


@dataclass(frozen=True, slots=True)
class Suspension:
    """Why a job or a task run is suspended.

    Attributes:
        since_ms: When that was decided; its tasks may take a while to stop.
        who: The user that did it; empty if that was none.
        reason: The policy's reason; empty if it gave none.
        job: For which job.
    """

    by: Suspender
    since_ms: Millis
    who: str = ""
    reason: str = ""
    job: JobId | None = None

    @property
    def words(self) -> str:
        """The reason, as users are told it."""
        match self.by:
            case Suspender.COST:
                return f"suspended at its max_cost: {self.reason}"
            case Suspender.MONTH:
                return f"suspended at its owner's limit: {self.reason}"
            case Suspender.USER:
                return f"suspended by {self.who or 'a user'}"
            case Suspender.PRIORITY:
                return f"suspended for {self.job}, which has a higher priority"
            case Suspender.POLICY:
                return "suspended by the policy" + (f": {self.reason}" if self.reason else "")
