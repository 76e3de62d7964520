"""A simulated object store that lists the generations of checkpoints and places outputs."""

from __future__ import annotations

from eva_lab.simulator.cluster.clock import Timeline
from eva_lab.simulator.cluster.workers import SimulatedWorkers
from eva_master.model.actions import FindExpired, ListCheckpoints, PlaceOutputs, RemoveResults
from eva_master.model.events import CheckpointsListed, OutputsPlaced, ResultsExpired, ResultsRemoved
from eva_master.ports import Inbox
from eva_wire.values.ids import RunId


class SimulatedCheckpoints:
    """Implements `eva_master.ports.Checkpoints` on virtual time.

    Args:
        timeline: The virtual time.
        inbox: Where its answers go.
        workers: The workers, which store checkpoints.
        latency_ms: Time from a request to its answer.
    """

    def __init__(
        self, timeline: Timeline, inbox: Inbox, workers: SimulatedWorkers, latency_ms: int = 100
    ) -> None:
        self._timeline = timeline
        self._inbox = inbox
        self._workers = workers
        self._latency_ms = latency_ms
        self.placed: dict[RunId, RunId] = {}
        """The extra run whose outputs are in the place of a task's own run."""

    def request(self, request: ListCheckpoints) -> None:
        """See `eva_master.ports.Checkpoints.request`."""
        for run in request.discard:
            self._workers.work(run).give_up_after(0)
        for run in request.runs:
            if request.give_up_after is not None:
                self._workers.work(run).give_up_after(request.give_up_after)
        generations = tuple(
            (run, tuple(sorted(self._workers.work(run).stored))) for run in request.runs
        )
        answer = CheckpointsListed(request.number, request.job, generations)
        self._timeline.after(self._latency_ms, lambda: self._inbox.post(answer))

    def place(self, request: PlaceOutputs) -> None:
        """See `eva_master.ports.Checkpoints.place`."""

        def done() -> None:
            self.placed[request.own] = request.run
            self._inbox.post(OutputsPlaced(request.run))

        self._timeline.after(self._latency_ms, done)

    def remove(self, request: RemoveResults) -> None:
        """See `eva_master.ports.Checkpoints.remove`."""
        answer = ResultsRemoved(request.job)
        self._timeline.after(self._latency_ms, lambda: self._inbox.post(answer))

    def expired(self, request: FindExpired) -> None:
        """See `eva_master.ports.Checkpoints.expired`; simulated jobs keep what they have stored."""
        answer = ResultsExpired((), request.until_ms)
        self._timeline.after(self._latency_ms, lambda: self._inbox.post(answer))
