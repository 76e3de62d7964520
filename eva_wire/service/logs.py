"""Structured logs of a service: JSON lines, or colours on a terminal; on standard error."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO, cast

import structlog
from structlog.typing import EventDict

from eva_wire.text.escapes import visible

_LONGEST_VALUE = 1_000
_LONGEST_TRACE = 20_000
_MOST_VALUES = 50
_DEEPEST = 4


def configure(**names: str) -> None:
    """Set up logging for this process.

    Args:
        names: Words of every line, but on a terminal: ``cluster="lab"``.
    """
    terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(
                fmt="%H:%M:%S" if terminal else "iso", utc=not terminal
            ),
            structlog.processors.format_exc_info,
            bounded,
            *((_harmless, structlog.dev.ConsoleRenderer()) if terminal else (_JSON,)),
        ],
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", UnfailingStderr())),
    )
    if not terminal:
        structlog.contextvars.bind_contextvars(**names)


class UnfailingStderr:
    """Standard error, whose failures fail nobody: its disk is full, or nobody reads it any more."""

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)

    def write(self, text: str) -> int:
        """Write a text if that is possible; returns its length."""
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        """Hand on what was written if that is possible."""
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()


_JSON = structlog.processors.JSONRenderer()


def _harmless(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Write out what would control the terminal: workers, tasks and users have a say in values."""
    return {
        name: visible(value) if isinstance(value, str) else value for name, value in event.items()
    }


def bounded(_logger: object, _method: str, line: MutableMapping[str, Any]) -> Mapping[str, Any]:
    """Cut the values of a log line: what others say is quoted in part, however much it is."""
    cut = {str(key)[:_LONGEST_VALUE]: _cut(value, _DEEPEST) for key, value in line.items()}
    if isinstance(trace := line.get("exception"), str):
        # The end of a traceback says what happened.
        too_long = len(trace) > _LONGEST_TRACE
        cut["exception"] = f"...{trace[-_LONGEST_TRACE:]}" if too_long else trace
    return cut


def _cut(value: Any, depth: int) -> Any:
    match value:
        case None | bool() | float():
            return value
        case int():
            return value if value.bit_length() <= 64 else _cut(hex(value), depth)
        case str():
            left_out = len(value) - _LONGEST_VALUE
            if left_out <= 0:
                return value
            return f"{value[:_LONGEST_VALUE]}... and {left_out:,} more characters"
        case Mapping() if depth:
            some = list(value.items())[:_MOST_VALUES]
            return {str(key)[:_LONGEST_VALUE]: _cut(each, depth - 1) for key, each in some}
        case list() | tuple() | set() | frozenset() if depth:
            return [_cut(each, depth - 1) for each in list(value)[:_MOST_VALUES]]
        case bytes():
            return _cut(repr(value[: _LONGEST_VALUE + 1]), depth)
        case _:
            return _cut(str(value), depth) if depth else "..."
