"""Conditions on the jobs of a list."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.adapters.rpc.server import views
from eva_master.adapters.rpc.server.shown.states import SUSPENDED
from eva_master.model.records import Job
from eva_master.ports.reading import JobRecord, ReadModel
from eva_wire.jobfile.schema import MOST_LABELS
from eva_wire.rpc.errors import BadRequest
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.states import JobState

_STATES = frozenset({*(state.value for state in JobState), SUSPENDED})
_LONGEST_SEARCH = 200


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Conditions that all jobs of a list meet.

    Attributes:
        labels: Labels that a job has, all of them.
        states: States of which it is in one, as users see them; any if there are none.
        search: Text in its id, name or owner, in lower case.
    """

    labels: frozenset[tuple[str, str]]
    states: frozenset[str]
    search: str

    def fits(self, record: JobRecord) -> bool:
        """Whether a job meets all conditions."""
        in_state = not self.states or views.state_of(record) in self.states
        return in_state and self._fits_spec(record.job)

    def newest(self, model: ReadModel, before: JobId | None, now: Millis) -> Iterator[JobRecord]:
        """Active jobs that meet it, newest first; takes time in proportion to those that do not."""
        for job in model.newest(before):
            if self._may_fit(model, job) and self.fits(record := model.record(job.id, now)):
                yield record

    def _may_fit(self, model: ReadModel, job: Job) -> bool:
        """Whether a job may meet it, by what can be told at once."""
        if self.states == {SUSPENDED} and not sum(model.totals.suspended.values()):
            return False
        resting = {JobState.PENDING.value, SUSPENDED}
        states = resting if job.state is JobState.PENDING else {job.state.value}
        return (not self.states or bool(self.states & states)) and self._fits_spec(job)

    def _fits_spec(self, job: Job) -> bool:
        spec = job.spec
        if not self.labels <= {*spec.labels}:
            return False
        texts = (job.id, spec.name, spec.owner)
        return not self.search or any(self.search in text.lower() for text in texts)


def filter_of(request: pb.ListJobsRequest) -> JobFilter:
    """The conditions of a request; raises `BadRequest`."""
    labels = frozenset(request.labels.items())
    if len(labels) > MOST_LABELS:
        raise BadRequest(f"no job has {len(labels)} labels: {MOST_LABELS} are the most")
    states = frozenset(request.states[: len(_STATES) + 1])
    if strange := states - _STATES:
        names = ", ".join(sorted(_STATES))
        raise BadRequest(f"{min(strange)[:40]!r} is no state of a job; states are {names}")
    if len(request.search) > _LONGEST_SEARCH:
        raise BadRequest(f"a search has at most {_LONGEST_SEARCH} characters")
    return JobFilter(labels, states, request.search.lower())
