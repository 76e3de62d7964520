"""Claims: room that is kept for task runs which wait, where what can be bought is limited."""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.model.ids import InstanceId, JobId, Millis, OfferingId, RunId
from eva_master.model.planning.suspension import Preemption


@dataclass(frozen=True, slots=True)
class Claim:
    """Room that is kept for task runs which wait; no other task run comes there meanwhile.

    A snapshot lists claims in their order: an earlier one has its room before a later one.

    Attributes:
        job: The first of the jobs for which room is kept.
        runs: The task runs of these jobs that wait, gangs whole, those first that come first.
        priority: Of these jobs.
        instances: Live instances of which the free room is kept, and what becomes free there.
        slots: Offerings with how many more instances of each are kept, within its limit.
        why: Why the jobs come first, in words that follow "which".
        equals: Whether room is also kept against jobs of the same priority; never against those
            of a higher one.
        complete_ms: When the room is complete at the soonest; `None` if that is not known. Task
            runs that end before may use it.
        preemption: What may be done to running jobs of lower priority so that the room is there.
    """

    job: JobId
    runs: tuple[RunId, ...]
    priority: int
    instances: tuple[InstanceId, ...] = ()
    slots: tuple[tuple[OfferingId, int], ...] = ()
    why: str = "has a higher priority"
    equals: bool = False
    complete_ms: Millis | None = None
    preemption: Preemption = Preemption.NEVER

    @property
    def told(self) -> str:
        """Reason that is given to task runs which may not use the room."""
        return f"room is kept for {self.job}, which {self.why}"
