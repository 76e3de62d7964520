"""Structured logs of the master: JSON lines, or colours on a terminal; on standard error."""

from __future__ import annotations

import sys
from typing import Any

import structlog
from structlog.typing import EventDict

from eva_master.adapters.text.escapes import visible


def configure(cluster: str) -> None:
    """Set up logging for this process. Every line has the cluster's name."""
    terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            *((_harmless, structlog.dev.ConsoleRenderer()) if terminal else (_JSON,)),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    structlog.contextvars.bind_contextvars(cluster=cluster)


_JSON = structlog.processors.JSONRenderer()


def _harmless(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Write out what would control the terminal: workers, tasks and users have a say in values."""
    return {name: visible(it) if isinstance(it, str) else it for name, it in event.items()}
