"""Structured logs on standard error: JSON lines, or colours on a terminal."""

from __future__ import annotations

import sys
from typing import Any

import structlog
from structlog.typing import EventDict


def configure(*, instance: str) -> None:
    """Set up logging for this process. Every line names the instance."""
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
    structlog.contextvars.bind_contextvars(instance=instance)


_JSON = structlog.processors.JSONRenderer()


def _harmless(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Show what would control the terminal as blanks: tasks have a say in values."""
    return {name: _printable(it) if isinstance(it, str) else it for name, it in event.items()}


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() or one == "\n" else " " for one in text)
