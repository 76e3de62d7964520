"""Asks the cloud's metadata service (IMDSv2) whether this instance will be taken away."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

import structlog

POLL_S = 5.0
_ANSWER_S = 2.0
_APART_MS = 3_000
"""Clocks that are apart by less are both right: the cloud tells whole seconds."""
_LONGEST_MS = 3_600_000
"""Clouds give minutes of notice."""
_TOKEN_LIFE_S = 21_600
_TOKEN_PATH = "/latest/api/token"  # noqa: S105 - no password
_ACTION = "/latest/meta-data/spot/instance-action"
_REBALANCE = "/latest/meta-data/events/recommendations/rebalance"
_MAINTENANCE = "/latest/meta-data/events/maintenance/scheduled"

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class InterruptionNotice:
    """A notice that the cloud will take the instance away, or may do so.

    Attributes:
        at_ms: When by the cloud's clock, in milliseconds since the epoch; 0 if the cloud only
            recommends to leave.
        reason: In words for the user.
        until_s: When by `time.monotonic`, since the clock of this machine may be wrong.
    """

    at_ms: int
    reason: str
    until_s: float = field(default=0.0, compare=False)

    def left_ms(self) -> int:
        """Milliseconds that the instance has left."""
        return max(0, round((self.until_s - time.monotonic()) * 1000))


class Metadata:
    """The metadata service of an instance. Its methods block.

    Args:
        url: URL of the service, such as ``http://169.254.169.254``.
    """

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._token = ""
        self._date = ""

    def notice(self) -> InterruptionNotice | None:
        """The present notice, an interruption before a recommendation; `None` for neither.

        Maintenance that is scheduled is a recommendation to leave.

        Raises:
            OSError: The service does not answer.
            ValueError: Its answer cannot be read.
        """
        if action := self._get(_ACTION):
            instance_action = json.loads(action)
            at_ms = _millis(instance_action["time"])
            left_ms = min(max(0, at_ms - self._now_ms()), _LONGEST_MS)
            until_s = time.monotonic() + left_ms / 1000
            return InterruptionNotice(
                at_ms, f"spot interruption: {instance_action['action']}", until_s
            )
        if self._get(_REBALANCE):
            return InterruptionNotice(0, "rebalance recommendation")
        for event in json.loads(self._get(_MAINTENANCE) or "[]"):
            if event.get("State", "active") == "active":
                words = f"maintenance: {event['Code']} not before {event['NotBefore']}"
                return InterruptionNotice(0, words)
        return None

    def _get(self, path: str) -> bytes:
        """Read a document, empty if there is none; get a new token if the old one has expired."""
        for fresh in (not self._token, True):
            if fresh:
                header = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_LIFE_S)}
                self._token = self._ask("PUT", _TOKEN_PATH, header).decode()
            try:
                return self._ask("GET", path, {"X-aws-ec2-metadata-token": self._token})
            except urllib.error.HTTPError as error:
                if error.code == HTTPStatus.NOT_FOUND:
                    return b""
                if error.code != HTTPStatus.UNAUTHORIZED or fresh:
                    raise
        raise AssertionError("unreachable: with a fresh token it returns or raises")

    def _ask(self, method: str, path: str, headers: dict[str, str]) -> bytes:
        request = urllib.request.Request(self._url + path, method=method, headers=headers)  # noqa: S310 - the operator's
        with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:  # noqa: S310
            self._date = answer.headers.get("Date", "")
            return bytes(answer.read())

    def _now_ms(self) -> int:
        """The present by the cloud's clock, as of its last answer.

        The clock of this machine tells it to the millisecond, but if it is wrong the cloud counts.
        """
        ours = time.time_ns() // 1_000_000
        try:
            theirs = round(parsedate_to_datetime(self._date).timestamp() * 1000)
        except (TypeError, ValueError, OverflowError):
            return ours
        return ours if abs(ours - theirs) <= _APART_MS else theirs


async def watch(
    metadata: Metadata, told: Callable[[InterruptionNotice], None], *, every_s: float = POLL_S
) -> None:
    """Ask regularly and report each notice once. Returns with an interruption.

    Args:
        metadata: The service.
        told: Called with each recommendation.
        every_s: Seconds between two questions.
    """
    last: InterruptionNotice | None = None
    while last is None or not last.at_ms:
        try:
            notice = await asyncio.to_thread(metadata.notice)
        except (OSError, ValueError, KeyError) as error:
            # A recommendation that was made still holds.
            _log.warning("the metadata service does not answer", error=str(error))
            notice = last
        if notice is not None and notice != last:
            last = notice
            told(notice)
        await asyncio.sleep(every_s)


def _millis(time: str) -> int:
    return int(datetime.fromisoformat(time).timestamp() * 1000)
