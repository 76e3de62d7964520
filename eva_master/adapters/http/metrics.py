"""Prometheus metrics of the master, read from the newest model when somebody scrapes."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Histogram, make_wsgi_app
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    SummaryMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from eva_master.adapters.http.budgets import BudgetFigures, budget_figures, budget_metrics
from eva_master.adapters.http.server import HttpsServer
from eva_master.adapters.loop.gateway import LoopGateway
from eva_master.adapters.loop.inbox import LiveInbox
from eva_master.adapters.notices.receivers import ReceiverStatus
from eva_master.adapters.pki.server import ServerIdentity
from eva_master.adapters.rpc.server import views
from eva_master.adapters.rpc.server.overview import attention
from eva_master.adapters.rpc.server.shown.installed import METRICS
from eva_master.adapters.rpc.server.shown.states import LASTING_STATES, jobs_by_state
from eva_master.adapters.rpc.workers.sessions import WorkerSessions
from eva_master.model.accounting.totals import PartitionTotals
from eva_master.model.changes import Changes
from eva_master.ports import Clock
from eva_master.ports.reading import ReadModel
from eva_wire.service.scrapes import at_its_path
from eva_wire.values.ids import MILLION, MILLIS_PER_HOUR, Millis
from eva_wire.values.states import (
    TERMINAL_RUN,
    InstanceState,
    JobState,
    RunState,
)

_TIMEOUT_S = 5.0
"""How long a scrape waits for a control loop that has just begun to start."""


@dataclass(frozen=True, slots=True)
class _Figures:
    """Figures of the model that a scrape reads."""

    jobs: Mapping[JobState, int]
    partitions: Mapping[str, PartitionTotals]
    partition_instances: Mapping[str, int]
    suspended: Mapping[str, int]
    tasks: Mapping[RunState, int]
    instances: Mapping[tuple[InstanceState, str], int]
    rounds: int
    turned_ms: Millis
    usd_per_hour: float
    no_packing_usd_per_hour: float
    usd_total: float
    workers: int
    cloud_fails: bool
    budgets: BudgetFigures
    silent_agents: int
    refused_types: int
    plans_long: bool


class MasterMetrics(Collector):
    """The master's own registry.

    Args:
        gateway: Has the newest model of the cluster.
        inbox: Counts what the loop has taken in.
        sessions: The workers.
        clock: For what is owed now.
        receivers: Tells how the receivers of notices fare.

    Attributes:
        registry: Holds all of it.
    """

    def __init__(
        self,
        *,
        gateway: LoopGateway,
        inbox: LiveInbox,
        sessions: WorkerSessions,
        clock: Clock,
        receivers: Callable[[], Iterable[ReceiverStatus]] = tuple,
    ) -> None:
        self._gateway = gateway
        self._inbox = inbox
        self._sessions = sessions
        self._clock = clock
        self._receivers = receivers
        self.registry = CollectorRegistry()
        self._round_seconds = Histogram(
            "eva_round_seconds",
            "From asking for a plan to its being carried out.",
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100),
            registry=self.registry,
        )
        self.registry.register(self)
        gateway.observe(self._observe)

    def serve(self, address: str, port: int, identity: ServerIdentity) -> HttpsServer:
        """Answer ``GET /metrics`` on a thread.

        Args:
            address: Of an interface.
            port: 0 takes any that is free.
            identity: Identity shown to clients.

        Raises:
            InvalidConfig: The address cannot be bound.
        """
        return HttpsServer(address, port, at_its_path(make_wsgi_app(self.registry)), identity)

    def collect(self) -> Iterable[Metric]:
        """Read the figures; called by whoever scrapes.

        Raises:
            TimeoutError: The control loop has not begun yet.
        """
        long = bool(self._gateway.planning())
        model, now = self._gateway.latest(_TIMEOUT_S), self._clock.now()
        figures = _figures(model, now, plans_long=long)
        yield from _states(figures)
        yield from _money(figures)
        for metrics in METRICS:
            yield from metrics(model, now)
        yield from _partitions(figures)
        yield from budget_metrics(figures.budgets)
        yield from _attention(figures)
        yield _gauge("eva_workers_connected", "Workers with a session.", figures.workers)
        yield _gauge(
            "eva_cloud_fails",
            "1 while the cloud does not do what it is asked.",
            figures.cloud_fails,
        )
        yield _gauge(
            "eva_control_loop_turn_timestamp_seconds",
            "When the control loop last looked at the world; it does once a minute at least.",
            figures.turned_ms / 1000,
        )
        yield _counter("eva_rounds", "Planning rounds.", figures.rounds)
        yield _counter("eva_heartbeats", "Heartbeats of workers.", self._sessions.heartbeats)
        yield _counter("eva_inbox_events", "Taken in by the control loop.", self._inbox.received)
        yield _boots(self._sessions)
        yield from _notices(self._receivers())

    def _observe(self, changes: Changes) -> None:
        for round_ in changes.rounds:
            self._round_seconds.observe(round_.planned_ms / 1000)


def _figures(model: ReadModel, now: Millis, *, plans_long: bool) -> _Figures:
    totals = model.totals
    divided, home = model.partitions.divided, model.partitions.default.name
    return _Figures(
        jobs=totals.jobs,
        partitions=model.of_partitions(now) if divided else {},
        partition_instances=Tally(instance.partition or home for instance in model.live.values()),
        suspended=totals.suspended,
        tasks=totals.runs,
        instances=Tally(
            (instance.state, instance.offering.type.name) for instance in model.live.values()
        ),
        rounds=model.rounds,
        turned_ms=model.wall.of(model.at_ms),  # others compare it with their clocks
        usd_per_hour=views.price_per_hour(model) / MILLION,
        no_packing_usd_per_hour=views.no_packing_price_per_hour(model) / MILLION,
        usd_total=model.charged(now) / MILLIS_PER_HOUR / MILLION,
        workers=model.connected,
        cloud_fails=model.trouble.since_ms is not None,
        budgets=budget_figures(model, now),
        silent_agents=len(attention.silent(model)),
        refused_types=len(attention.refused_types(model, now)),
        plans_long=plans_long,
    )


def _states(figures: _Figures) -> Iterator[Metric]:
    jobs = GaugeMetricFamily("eva_jobs", "Jobs that have not ended.", labels=["state"])
    counts = jobs_by_state(figures.jobs, sum(figures.suspended.values()))
    for name in LASTING_STATES:
        jobs.add_metric([name], counts.get(name, 0))
    yield jobs
    tasks = GaugeMetricFamily("eva_tasks", "Tasks that are not settled.", labels=["state"])
    for run_state in RunState:
        if run_state not in TERMINAL_RUN:
            tasks.add_metric([run_state.value], figures.tasks.get(run_state, 0))
    yield tasks
    instances = GaugeMetricFamily(
        "eva_instances", "Instances that are not gone.", labels=["state", "type"]
    )
    for (instance_state, kind), count in sorted(figures.instances.items()):
        instances.add_metric([instance_state.value, kind], count)
    yield instances
    queued = figures.tasks.get(RunState.WAITING, 0)
    yield _gauge("eva_queue_tasks", "Tasks that wait for a place or a start.", queued)


def _money(figures: _Figures) -> Iterator[Metric]:
    yield _gauge(
        "eva_cost_usd_per_hour", "Price of the instances that are billed.", figures.usd_per_hour
    )
    yield _gauge(
        "eva_no_packing_usd_per_hour",
        "Price of one instance per task that runs.",
        figures.no_packing_usd_per_hour,
    )
    yield _counter("eva_cost_usd", "Charged since the cluster began.", figures.usd_total)


def _partitions(figures: _Figures) -> Iterator[Metric]:
    """Figures by partition, if the cluster is divided: their names are the settings'."""
    jobs = GaugeMetricFamily(
        "eva_partition_jobs", "Jobs of a partition that have not ended.", labels=["partition"]
    )
    tasks = GaugeMetricFamily(
        "eva_partition_tasks", "The tasks of these jobs.", labels=["partition"]
    )
    instances = GaugeMetricFamily(
        "eva_partition_instances", "Instances of a partition.", labels=["partition"]
    )
    cost = CounterMetricFamily(
        "eva_partition_cost_usd", "Charged for a partition's instances.", labels=["partition"]
    )
    month = GaugeMetricFamily(
        "eva_partition_month_usd", "The same in this calendar month, UTC.", labels=["partition"]
    )
    for name, sums in sorted(figures.partitions.items()):
        jobs.add_metric([name], sums.jobs)
        tasks.add_metric([name], sums.tasks)
        instances.add_metric([name], figures.partition_instances.get(name, 0))
        cost.add_metric([name], sums.charged / MILLIS_PER_HOUR / MILLION)
        month.add_metric([name], sums.month_charged / MILLIS_PER_HOUR / MILLION)
    yield from (jobs, tasks, instances, cost, month)


def _attention(figures: _Figures) -> Iterator[Metric]:
    """Figures that are zero while all is well."""
    yield _gauge(
        "eva_agents_silent",
        "Instances that are paid for and of whose agents nothing is heard.",
        figures.silent_agents,
    )
    yield _gauge(
        "eva_types_refused",
        "Types of instances that the cloud refuses to launch at present.",
        figures.refused_types,
    )
    yield _gauge("eva_planning_long", "1 while a plan takes longer than usual.", figures.plans_long)


def _notices(receivers: Iterable[ReceiverStatus]) -> Iterator[Metric]:
    """Figures by receiver of notices: their names are the settings'."""
    waiting = GaugeMetricFamily(
        "eva_notices_waiting", "Notices that a receiver is yet to be sent.", labels=["receiver"]
    )
    failing = GaugeMetricFamily(
        "eva_notices_failing", "1 while a receiver takes no notices.", labels=["receiver"]
    )
    sent = CounterMetricFamily(
        "eva_notices_sent", "Notices that a receiver took.", labels=["receiver"]
    )
    dropped = CounterMetricFamily(
        "eva_notices_dropped",
        "Notices that a receiver was not sent: too many waited, or for too long.",
        labels=["receiver"],
    )
    for status in receivers:
        waiting.add_metric([status.name], status.waiting)
        failing.add_metric([status.name], bool(status.reason))
        sent.add_metric([status.name], status.sent)
        dropped.add_metric([status.name], status.dropped)
    yield from (waiting, failing, sent, dropped)


def _boots(sessions: WorkerSessions) -> Metric:
    family = SummaryMetricFamily(
        "eva_boot_stage_seconds",
        "From a start of an instance to its worker, by type and stage.",
        labels=["type", "stage"],
    )
    for labels, (count, total_ms) in sorted(sessions.boots.items()):
        family.add_metric(labels, count, total_ms / 1000)
    return family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)
