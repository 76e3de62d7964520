"""Claims: room that is kept for task runs which wait, where what can be bought is limited."""

from __future__ import annotations

from dataclasses import dataclass

from eva_master.model.planning.suspension import Preemption
from eva_wire.values.ids import InstanceId, JobId, Millis, OfferingId, RunId


@dataclass(frozen=True, slots=True)
class Claim:
    """Room that is kept for waiting task runs; no other task run gets it meanwhile.

    A snapshot lists claims in order: an earlier claim has its room before a later one.

    Attributes:
        job: The first of the jobs for which room is kept.
        runs: The waiting task runs of these jobs, gangs whole, in the order of their turn.
        priority: Priority of these jobs.
        instances: Live instances of which the free room, and room that becomes free, is kept.
        slots: Offerings, each with the number of further instances kept within its limit.
        why: Why the jobs come first, in words that follow "which".
        equals: Whether room is also kept against jobs of the same priority; never against those of
            a higher one.
        complete_ms: When the room is complete at the earliest; `None` if unknown. Task runs that
            end before may use it.
        preemption: Treatment of running jobs of lower priority to make the room.
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
    def refusal(self) -> str:
        """Reason given to task runs that may not use the room."""
        return f"room is kept for {self.job}, which {self.why}"
