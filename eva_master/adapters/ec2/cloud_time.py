"""EC2's clock: what EC2 dates is carried over to the loop's time, and bills are by EC2's times."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import structlog

from eva_master.ports import Clock
from eva_wire.values.durations import span
from eva_wire.values.ids import Millis

_WHOLE_MS = 1_000
"""EC2 tells its time in whole seconds."""
_SLACK_MS = 2_000
"""Clocks that are apart by less count as one, so that equal answers stay equal."""

_log = structlog.get_logger(__name__)


class CloudTime:
    """How EC2's clock stands to the loop's. Any thread may use it.

    EC2 says its time with each answer. No wall clock of this machine is read: it may be wrong.

    Args:
        clock: The loop's time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._behind_ms = 0  # EC2's clock, against the loop's

    def asked(self) -> Millis:
        """The loop's time; to be called right before a call of EC2."""
        return self._clock.now()

    def answered(self, asked_ms: Millis, answer: object) -> None:
        """Take in EC2's time from an answer; one that has none tells nothing.

        Args:
            asked_ms: Result of `asked`.
            answer: As boto3 returns it.
        """
        date_ms = date_ms_of(answer)
        if date_ms is None:
            return
        # The answer was dated between the question and now.
        least, most = asked_ms - date_ms - _WHOLE_MS, self._clock.now() - date_ms
        if least - _SLACK_MS <= self._behind_ms <= most + _SLACK_MS:
            return
        self._behind_ms = (least + most) // 2
        _log.warning(
            "EC2's clock and the master's time are apart: bills are by EC2's",
            by=span(abs(self._behind_ms)),
            ahead="EC2" if self._behind_ms < 0 else "the master",
        )

    def loop_ms(self, cloud_ms: int) -> Millis:
        """The loop's time at one of EC2's."""
        return Millis(cloud_ms + self._behind_ms)

    def cloud_ms(self, loop_ms: int) -> Millis:
        """EC2's time at one of the loop's."""
        return Millis(loop_ms - self._behind_ms)

    def now(self) -> datetime:
        """The present by EC2's clock."""
        return datetime.fromtimestamp(self.cloud_ms(self._clock.now()) / 1000, UTC)


def date_ms_of(answer: object) -> int | None:
    """When an answer was made by the clock of whoever made it; `None` if it does not say."""
    value: Any = answer
    for key in ("ResponseMetadata", "HTTPHeaders", "date"):
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    if not isinstance(value, str):
        return None
    try:
        return round(parsedate_to_datetime(value).timestamp() * 1000)
    except (TypeError, ValueError, OverflowError):
        return None
