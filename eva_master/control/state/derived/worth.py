"""What tasks are worth, remembered as long as prices and rates are the same."""

from __future__ import annotations

from collections.abc import Callable

from eva_master.model.ids import JobId
from eva_master.model.planning.snapshot import StandaloneRates
from eva_master.model.records import Job
from eva_master.model.states import TERMINAL_JOB
from eva_master.packing.valuation.job_valuation import (
    JobReservations,
    JobValuation,
    Reservation,
)


class Worth:
    """The valuation of the moment, and the reservations of active jobs that were asked about.

    Args:
        valuation: Makes a valuation of the present catalog and rates.
    """

    def __init__(self, valuation: Callable[[], JobValuation]) -> None:
        self._make = valuation
        self._valuation: JobValuation | None = None
        self._reservations: dict[JobId, JobReservations] = {}

    @property
    def valuation(self) -> JobValuation:
        """What jobs are worth at the prices of this moment and the rates that are known."""
        if self._valuation is None:
            self._valuation = self._make()
        return self._valuation

    def reservation(self, job: Job, index: int) -> Reservation:
        """What one task of a job is worth, and on which offering."""
        found = self._reservations.get(job.id)
        if found is None:
            found = JobReservations(self.valuation, job.spec)
            if job.state not in TERMINAL_JOB:
                self._reservations[job.id] = found
        return found[index]

    def forget(self, job: JobId) -> None:
        """Forget a job, which has ended."""
        self._reservations.pop(job, None)

    def rates_changed(self, known: StandaloneRates) -> None:
        """Other rates are known from now on."""
        self._reservations.clear()
        if self._valuation is not None:
            self._valuation.follow(known)

    def prices_changed(self) -> None:
        """Offerings are others, or have other prices, from now on."""
        self._reservations.clear()
        self._valuation = None
