"""The page Events, and the events on other pages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlencode

from eva_client.cli.views.words import ago
from eva_master.model.feed import FeedKind
from eva_wire.rpc.messages import FeedEvent
from eva_wire.text.escapes import visible
from eva_wire.text.moments import date_of

MOST_EVENTS = 200
_DIGITS = 19
_LEVELS: Mapping[str, str] = {
    FeedKind.FAILED: "bad",
    FeedKind.LATE: "bad",
    FeedKind.LOST: "warn",
    FeedKind.REFUSED: "warn",
    FeedKind.REVOKED: "warn",
    FeedKind.CAPPED: "warn",
    FeedKind.SUSPENDED: "warn",
    FeedKind.SUCCEEDED: "good",
    FeedKind.PLACED: "good",
    FeedKind.UP: "good",
}


@dataclass(frozen=True, slots=True)
class EventRow:
    """An event.

    Attributes:
        level: ``bad``, ``warn``, ``good`` or empty.
        subject: The task, job or instance; ``cluster`` for neither.
        href: Path of its page; empty for the cluster.
        at: Date and time in UTC, for machines.
        clock: The time of day in UTC.
        day: The date in UTC.
    """

    number: int
    kind: str
    level: str
    subject: str
    href: str
    text: str
    at: str
    clock: str
    day: str
    ago: str


@dataclass(frozen=True, slots=True)
class EventsQuery:
    """Limits on the events of a page.

    Attributes:
        subject: The job or instance; empty for all.
        kind: The kind; empty for all.
        before: Number that is larger than theirs; 0 for the newest.
    """

    subject: str = ""
    kind: str = ""
    before: int = 0

    def path(self, before: int) -> str:
        """The path of the page of the same with another number."""
        values = {"subject": self.subject, "kind": self.kind, "before": before}
        given = urlencode({name: value for name, value in values.items() if value})
        return f"/events?{given}" if given else "/events"


def events_query(parameters: Mapping[str, str]) -> EventsQuery:
    """The query of a path's parameters; a number that is none is left out."""
    number = parameters.get("before", "")
    return EventsQuery(
        parameters.get("subject", "").strip()[:200],
        parameters.get("kind", "")[:40],
        int(number) if number.isascii() and number.isdigit() and len(number) < _DIGITS else 0,
    )


@dataclass(frozen=True, slots=True)
class EventsPage:
    """Contents of the page.

    Attributes:
        older: Path of the page of older events; empty if there are none.
        first: Path of the page of the newest events; empty on that page.
    """

    rows: tuple[EventRow, ...]
    kinds: tuple[str, ...]
    subject: str
    kind: str
    older: str
    first: str


def row(event: FeedEvent, now: int) -> EventRow:
    """An event as a row."""
    moment = date_of(event.at_ms)
    page = ""
    if event.job:
        page = f"/jobs/{event.job}"
    elif event.instance:
        page = f"/cluster/{event.instance}"
    return EventRow(
        number=event.number,
        kind=visible(event.kind),
        level=_LEVELS.get(event.kind, ""),
        subject=event.task or event.job or event.instance or "cluster",
        href=page,
        text=visible(event.text),
        at=f"{moment:%Y-%m-%dT%H:%M:%SZ}",
        clock=f"{moment:%H:%M:%S}",
        day=f"{moment:%Y-%m-%d}",
        ago=ago(event.at_ms, now),
    )


def page(
    events: Iterable[FeedEvent], query: EventsQuery, now: int, *, more: bool = False
) -> EventsPage:
    """The page of events, the newest first.

    Args:
        events: All that were read; others than of the query's kind are left out.
        query: The query.
        now: The present time.
        more: Whether there may be older events.
    """
    newest = sorted(events, key=lambda event: -event.number)
    return EventsPage(
        rows=tuple(row(event, now) for event in newest if query.kind in ("", event.kind)),
        kinds=tuple(each.value for each in FeedKind),
        subject=visible(query.subject),
        kind=query.kind,
        older=query.path(newest[-1].number) if more else "",
        first=query.path(0) if query.before else "",
    )
