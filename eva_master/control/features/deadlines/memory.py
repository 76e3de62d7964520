"""Memory of jobs with deadlines."""

from __future__ import annotations

from eva_master.control.turn.turn import Feature, Turn
from eva_master.learning.market.pools import SpotPool
from eva_master.model.catalog import Offering
from eva_master.model.records import Job
from eva_master.model.resources import Resources
from eva_master.packing.deadlines.choice import Chooser
from eva_master.packing.deadlines.table import SpotForecast
from eva_master.packing.deadlines.thin_work import ThinWork
from eva_wire.values.ids import JobId, Millis


class DeadlineMemory(Feature):
    """Memory of jobs with deadlines.

    Attributes:
        outlooks: The last forecast for each set of pools, and until when it holds.
        chooser: Chooser, with its memory of tables.
        thin_work: Places of the work that has little time to lose.
        free: Free room on on-demand instances in a turn.
        looks: When each job with a deadline or a wait for spot instances is checked next.
    """

    def __init__(self) -> None:
        self.outlooks: dict[tuple[SpotPool, ...], tuple[Millis, SpotForecast]] = {}
        self.chooser = Chooser()
        self.thin_work = ThinWork()
        self.free: tuple[Millis, list[tuple[Offering, Resources]]] = (Millis(-1), [])
        self.looks: dict[JobId, Millis] = {}

    def job_ends(self, turn: Turn, job: Job) -> None:
        """Forget a job that ends."""
        self.looks.pop(job.id, None)
        self.thin_work.drop(job.id)
