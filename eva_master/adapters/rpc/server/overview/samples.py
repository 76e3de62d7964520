"""Figures over time, bounded: prices of the cluster, and metrics of active jobs.

A full series forgets every other of its points, and takes further ones half as often: so it always
reaches from its beginning to now.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterator

import structlog

from eva_master.adapters.loop.gateway import LoopGateway
from eva_master.adapters.rpc.bounded import bounded_pb as pb
from eva_master.adapters.rpc.server import views
from eva_master.ports import Clock, RoundHistory
from eva_master.ports.reading import ReadModel
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.states import RunState

POINTS = 300
"""Points of the prices, and of all metrics of one job together."""
_METRICS = 6
"""Metrics of a job that are kept: its pace, and the first ones that its task reports."""
_NAME = 64
PACE = "iterations per second"
_EVERY_S = 5.0

log = structlog.get_logger(__name__)


class Series:
    """Values at times, at most so many.

    Args:
        most: Number of points; at least 2.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._times = array("q")
        self._values = array("d")
        self._every_ms = 0

    def add(self, at_ms: int, value: float) -> None:
        """Add a point, unless the last one is too near."""
        times = self._times
        if times and at_ms - times[-1] < self._every_ms:
            return
        if len(times) >= self._most:
            times, self._values = times[::2], self._values[::2]
            self._every_ms = 2 * (at_ms - times[0]) // self._most
        times.append(at_ms)
        self._values.append(value)
        self._times = times

    def curve(self, name: str) -> pb.Curve:
        """The points as a message."""
        return pb.Curve(name=name, at_ms=list(self._times), values=list(self._values))


class Samples:
    """Prices since the master began, and metrics of the jobs that are active.

    `take` belongs to one thread; any thread may read.

    Args:
        history: Rounds, with the bounds of their prices.
    """

    def __init__(self, history: RoundHistory) -> None:
        self._history = history
        self._lock = threading.Lock()
        self._prices: list[pb.PricePoint] = []
        self._every_ms = 0
        self._round = -1
        self._gap: int | None = None
        self._metrics: dict[JobId, dict[str, Series]] = {}

    def take(self, model: ReadModel, now: Millis) -> None:
        """Add what a model says; takes time in proportion to the tasks that run."""
        point = self._point(model, now)
        figures = list(_figures(model))
        with self._lock:
            self._add(point)
            for job in self._metrics.keys() - model.active.keys():
                del self._metrics[job]
            for job, name, value in figures:
                series = self._metrics.setdefault(job, {})
                if name not in series and len(series) < _METRICS:
                    series[name] = Series(POINTS // _METRICS)
                if name in series:
                    series[name].add(now, value)

    def prices(self) -> list[pb.PricePoint]:
        """Prices since the master began, oldest first."""
        with self._lock:
            return list(self._prices)

    def curves(self, job: JobId) -> list[pb.Curve]:
        """Figures of the first running task of an active job; none of another."""
        with self._lock:
            return [series.curve(name) for name, series in self._metrics.get(job, {}).items()]

    def _add(self, point: pb.PricePoint) -> None:
        prices = self._prices
        if prices and point.at_ms - prices[-1].at_ms < self._every_ms:
            return
        if len(prices) >= POINTS:
            del prices[1::2]
            self._every_ms = 2 * (point.at_ms - prices[0].at_ms) // POINTS
        prices.append(point)

    def _point(self, model: ReadModel, now: Millis) -> pb.PricePoint:
        paid, gap = views.price_per_hour(model), self._gap_of(model)
        return pb.PricePoint(
            at_ms=now,
            paid=paid,
            no_packing=views.no_packing_price_per_hour(model),
            bound=None if gap is None else max(0, paid - gap),
        )

    def _gap_of(self, model: ReadModel) -> int | None:
        """How far the newest plan may be from the best one; the journal is read once a round.

        Bound and cost of a plan hold slowdowns at their value. Any plan whose tasks slow each other
        down by no more than these is at most this much cheaper.
        """
        if model.rounds != self._round:
            self._round = model.rounds
            newest = self._history.explained()
            weighing = None
            if newest is not None and newest.reasons is not None:
                weighing = newest.reasons.weighing
            bound = None if weighing is None else weighing.lower_bound_micro_usd_per_hour
            self._gap = None
            if weighing is not None and bound is not None:
                self._gap = max(0, weighing.cost_micro_usd_per_hour - bound)
        return self._gap


def _figures(model: ReadModel) -> Iterator[tuple[JobId, str, float]]:
    """Figures of the first running task of each job that has a place."""
    seen = set[JobId]()
    for instance in model.live:
        for run in model.occupants(instance):
            if run.job in seen or run.state is not RunState.RUNNING:
                continue
            seen.add(run.job)
            if run.progress.rate:
                yield run.job, PACE, run.progress.rate
            for name, value in run.progress.metrics[: _METRICS - 1]:
                yield run.job, name[:_NAME], value


class Sampler:
    """Takes samples on a thread of its own, until it is stopped.

    Args:
        samples: Gets them.
        gateway: Has the newest model.
        clock: The time of a sample.
        every_s: Seconds from one sample to the next.
    """

    def __init__(
        self, samples: Samples, gateway: LoopGateway, clock: Clock, every_s: float = _EVERY_S
    ) -> None:
        self._samples, self._gateway, self._clock = samples, gateway, clock
        self._every_s = every_s
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="samples", daemon=True)

    def start(self) -> None:
        """Begin to take samples every few seconds."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, if it was started."""
        self._ending.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                self._samples.take(self._gateway.latest(self._every_s), self._clock.now())
            except TimeoutError:
                continue
            except Exception as error:
                log.error("figures for plots were not taken", exc_info=error)
            self._ending.wait(self._every_s)
