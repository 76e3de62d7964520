"""Memory of rounds that all partitions share."""

from __future__ import annotations

from eva_master.control.turn.turn import Feature
from eva_wire.values.ids import JobId, Millis


class RoundMemory(Feature):
    """Memory of rounds that all partitions share.

    Attributes:
        refused: Partitions whose spot launches were refused in this turn.
        overdue: Partitions whose next plan is made although policies would see nothing new.
        declined: Jobs whose policies did not use available room, with the time.
    """

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.overdue: set[str] = set()
        self.declined: dict[JobId, Millis] = {}

    def forget(self, until: int) -> None:
        """Forget jobs whose policies declined room until a time."""
        self.declined = {job: at for job, at in self.declined.items() if at > until}
