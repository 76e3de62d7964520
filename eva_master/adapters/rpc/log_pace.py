"""Keeps whoever is refused again and again from filling the log."""

from __future__ import annotations

import structlog

from eva_master.adapters.token_bucket import TokenBucket

_LINES_AT_ONCE = 50
_LINES_PER_SECOND = 5.0

log = structlog.get_logger(__name__)


class LogPace:
    """Writes warnings, of very many in a row only their number."""

    def __init__(self) -> None:
        self._bucket = TokenBucket(_LINES_AT_ONCE, _LINES_PER_SECOND)
        self._left_out = 0

    def warning(self, event: str, **values: object) -> None:
        """Log a warning, or count it."""
        if self._bucket.tokens < 1:
            self._left_out += 1
            return
        self._bucket.take()
        if self._left_out:
            log.warning("more like the next one were not logged", number=self._left_out)
            self._left_out = 0
        log.warning(event, **values)
