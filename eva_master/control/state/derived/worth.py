"""Reservation prices of tasks, remembered while prices and rates stay the same."""

from __future__ import annotations

from collections.abc import Callable

from eva_master.learning.voices.names import Voice, voice_of
from eva_master.model.job import JobSpec, TaskSpec
from eva_master.model.planning.snapshot import StandaloneRates
from eva_master.model.records import Job
from eva_master.packing.valuation.job_valuation import (
    JobReservations,
    JobValuation,
    Rates,
    Reservation,
)
from eva_wire.values.ids import JobId
from eva_wire.values.states import TERMINAL_JOB


class Valuations:
    """The valuations of the moment, and the reservations of active jobs that were asked about.

    Each voice's jobs are valued by its own rates alone: what others report changes no price.

    Args:
        offerings: Makes a valuation of the present catalog.
        known: Tells the rates that a voice's jobs have taught.
    """

    def __init__(
        self,
        offerings: Callable[[], JobValuation],
        known: Callable[[Voice], StandaloneRates],
    ) -> None:
        self._make = offerings
        self._known = known
        self._offerings: JobValuation | None = None
        self._valuations: dict[Voice, JobValuation] = {}
        self._reservations: dict[JobId, JobReservations] = {}
        self._jobs: dict[Voice, set[JobId]] = {}
        """The jobs of each voice that have reservations here."""

    def valuation(self, voice: Voice) -> JobValuation:
        """Valuation of a voice's jobs, at the prices of this moment and the rates of the voice."""
        valuation = self._valuations.get(voice)
        if valuation is None:
            self._offerings = self._offerings or self._make()
            valuation = self._valuations[voice] = self._offerings.by(self._known(voice))
        return valuation

    def of(self, spec: JobSpec) -> tuple[Reservation, ...]:
        """The reservation of each task of a job, be the job submitted or not."""
        return self.valuation(voice_of(spec)).of(spec)

    def rates(self, job: JobSpec, task: TaskSpec) -> Rates:
        """Standalone rates of a task of a job, by the job's own voice."""
        return self.valuation(voice_of(job)).rates(task)

    def reservation(self, job: Job, index: int) -> Reservation:
        """The reservation price of one task of a job, and the offering with that price."""
        reservations = self._reservations.get(job.id)
        if reservations is None:
            voice = voice_of(job.spec)
            reservations = JobReservations(self.valuation(voice), job.spec)
            if job.state not in TERMINAL_JOB:
                self._reservations[job.id] = reservations
                self._jobs.setdefault(voice, set()).add(job.id)
        return reservations[index]

    def forget(self, job: Job) -> None:
        """Forget a job, which has ended."""
        if self._reservations.pop(job.id, None) is not None:
            self._jobs[voice_of(job.spec)].discard(job.id)

    def rates_changed(self, voice: Voice) -> None:
        """Other rates of a voice's workloads are known from now on."""
        for job in self._jobs.pop(voice, ()):
            del self._reservations[job]
        if (valuation := self._valuations.get(voice)) is not None:
            valuation.follow(self._known(voice))

    def prices_changed(self) -> None:
        """Offerings are others, or have other prices, from now on."""
        self._reservations.clear()
        self._jobs.clear()
        self._valuations.clear()
        self._offerings = None
