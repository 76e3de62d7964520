"""Suspensions: tasks that were stopped from a checkpoint and wait, and who wants that."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from eva_master.model.ids import JobId, Millis


class Suspender(StrEnum):
    """Who has suspended a job or a task run."""

    USER = "user"
    """It waits until a user has it go on."""
    POLICY = "policy"
    """It goes on when the policy gives it a place again."""
    PRIORITY = "priority"
    """It had to make room for a job of higher priority, and goes on when there is room."""


class Preemption(StrEnum):
    """What a job that waits may do to running jobs of lower priority."""

    NEVER = "never"
    """Nothing: it is the first to get what becomes free."""
    SUSPEND = "suspend"
    """Suspend as many as it needs."""


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
            case Suspender.USER:
                return f"suspended by {self.who or 'a user'}"
            case Suspender.PRIORITY:
                return f"suspended for {self.job}, which has a higher priority"
            case Suspender.POLICY:
                return "suspended by the policy" + (f": {self.reason}" if self.reason else "")
