"""Keeps whoever is refused again and again from filling the log."""

from __future__ import annotations

import time

import structlog

_LINES_AT_ONCE = 50
_LINES_PER_SECOND = 5.0

log = structlog.get_logger(__name__)


class LogPace:
    """Writes warnings, of very many in a row only their number."""

    def __init__(self) -> None:
        self._left = float(_LINES_AT_ONCE)
        self._at = time.monotonic()
        self._left_out = 0

    def warning(self, event: str, **values: object) -> None:
        """Log a warning, or count it."""
        now = time.monotonic()
        self._left = min(_LINES_AT_ONCE, self._left + (now - self._at) * _LINES_PER_SECOND)
        self._at = now
        if self._left < 1:
            self._left_out += 1
            return
        self._left -= 1
        if self._left_out:
            log.warning("more like the next one were not logged", number=self._left_out)
            self._left_out = 0
        log.warning(event, **values)
