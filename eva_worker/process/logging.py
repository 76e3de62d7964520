"""Structured logs on standard error: JSON lines, or colours on a terminal."""

from __future__ import annotations

import sys

import structlog


def configure(*, instance: str) -> None:
    """Set up logging for this process. Every line names the instance."""
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
    structlog.contextvars.bind_contextvars(instance=instance)
