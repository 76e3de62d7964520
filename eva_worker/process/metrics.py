"""The worker's metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, make_wsgi_app

from eva_wire.service.scrapes import at_its_path
from eva_worker.orders import Phase
from eva_worker.process import https


class Metrics:
    """The worker's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._tasks = Gauge(
            "eva_worker_tasks",
            "Attempts known to the worker; exited ones until the master has acknowledged it.",
            ["phase"],
            registry=self.registry,
        )
        self.session_up = Gauge(
            "eva_worker_session_up",
            "1 while the worker is registered with the master.",
            registry=self.registry,
        )
        self.reconnects = Counter(
            "eva_worker_reconnects_total",
            "Sessions that ended though the worker did not end them.",
            registry=self.registry,
        )
        self.uploaded_bytes = Counter(
            "eva_worker_uploaded_bytes_total",
            "Bytes of logs, outputs and checkpoints uploaded to the object store.",
            registry=self.registry,
        )

    def watch_tasks(self, count: Callable[[Phase], int]) -> None:
        """Call a function for the number of attempts in a phase at every scrape."""
        for phase in Phase:
            self._tasks.labels(phase.value).set_function(partial(count, phase))

    def serve(self, port: int, *, certificate: Path, key: Path) -> None:
        """Serve the metrics over HTTPS from a thread, on the loopback interface only.

        Raises:
            OSError: Another process has the port.
        """
        https.serve(
            port, at_its_path(make_wsgi_app(self.registry)), certificate=certificate, key=key
        )
