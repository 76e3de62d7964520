"""Structured logs of the master: JSON lines, or colours on a terminal; on standard error."""

from __future__ import annotations

import sys

import structlog


def configure(cluster: str) -> None:
    """Set up logging for this process. Every line has the cluster's name."""
    terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.dev.ConsoleRenderer() if terminal else structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    structlog.contextvars.bind_contextvars(cluster=cluster)
