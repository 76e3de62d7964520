"""Notices that are still to be sent: in memory, and in the journal's database."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from sqlalchemy import Connection, Engine, delete, func, select

from eva_master.adapters.store import rows
from eva_master.adapters.store.journal import translated, typed, upsert
from eva_master.adapters.store.tables import FEED, NOTICE_MARKS, NOTICES
from eva_master.model.feed import FeedEvent
from eva_master.model.notices import MOST_WAITING, Notice
from eva_wire.values.ids import Millis

_READ = "read"
_SENT, _DROPPED = "sent:", "dropped:"
_AT_ONCE = 400
"""Names of one statement."""


@dataclass(frozen=True, slots=True)
class WaitingNotice:
    """A notice that waits.

    Attributes:
        since_ms: When it was taken in, by the loop's time.
        due_ms: When it is tried next.
        tries: How often it was tried in vain.
    """

    notice: Notice
    since_ms: Millis
    due_ms: Millis
    tries: int = 0


class NoticeOutbox:
    """The notices that wait, and counts of those that were sent and dropped.

    One thread at a time may call it. Changes are in memory until `flush` has stored them;
    only notices that are stored are given out. A flush that fails loses nothing.

    Args:
        engine: The journal's database.
        receivers: Names of the receivers; notices to others are removed.
        most: Notices at most; beyond that the oldest of the receiver with most of them go.

    Attributes:
        read: Number of the last event that was looked at; `None` before the first look.
        sent: Notices that each receiver took.
        dropped: Notices that each receiver was not sent.

    Raises:
        StorageError: The database cannot be read.
    """

    def __init__(
        self, engine: Engine, receivers: Collection[str], most: int = MOST_WAITING
    ) -> None:
        self._engine, self._most = engine, most
        self._waiting: defaultdict[str, dict[str, WaitingNotice]] = defaultdict(dict)
        self._size = 0
        self._changed: dict[str, WaitingNotice | None] = {}
        self._stored: set[str] = set()
        self._out: set[str] = set()
        self.read: int | None = None
        self.sent: Counter[str] = Counter()
        self.dropped: Counter[str] = Counter()
        self._load(receivers)

    def __len__(self) -> int:
        return self._size

    def of(self, receiver: str) -> Collection[WaitingNotice]:
        """The notices that wait for a receiver, the oldest first."""
        return self._waiting[receiver].values()

    def due_ms(self, receiver: str) -> Millis | None:
        """When the next notice is due at a receiver; `None` if none waits."""
        return min((entry.due_ms for entry in self._free(receiver)), default=None)

    def take(self, receiver: str, now: Millis, most: int) -> list[WaitingNotice]:
        """Take notices that are due, to be sent; each is then `done` or to `postpone`.

        Args:
            receiver: Name of the receiver.
            now: The time.
            most: How many at most.
        """
        due = [entry for entry in self._free(receiver) if entry.due_ms <= now]
        taken = sorted(due, key=lambda entry: entry.due_ms)[:most]
        self._out.update(entry.notice.id for entry in taken)
        return taken

    def give_back(self, waiting: WaitingNotice) -> None:
        """Leave a notice that was taken and not tried as it was."""
        self._out.discard(waiting.notice.id)

    def expired(self, before: Millis) -> list[WaitingNotice]:
        """Notices that came in before a time and that nobody sends now."""
        return [
            entry
            for receiver in self._waiting
            for entry in self._free(receiver)
            if entry.since_ms < before
        ]

    def _free(self, receiver: str) -> Iterator[WaitingNotice]:
        """Notices that are stored and not taken."""
        for name, entry in self._waiting[receiver].items():
            if name in self._stored and name not in self._out:
                yield entry

    def add(self, notices: Iterable[Notice], now: Millis, due: Mapping[str, Millis]) -> None:
        """Add notices; one that waits untried and tells the same of the cluster counts along.

        Args:
            notices: In order. One that waits already is left out.
            now: The time.
            due: When a notice is tried first, by its id; `now` for others.
        """
        for notice in notices:
            of_receiver = self._waiting[notice.receiver]
            if notice.id in of_receiver:
                continue
            same = self._alike(notice) if notice.counts_along else None
            if same is not None:
                more = replace(same.notice, count=same.notice.count + notice.count)
                self._put(replace(same, notice=more))
                continue
            self._put(WaitingNotice(notice, now, due.get(notice.id, now)))
        while self._size > self._most:
            largest = max(self._waiting, key=lambda name: len(self._waiting[name]))
            of_largest = self._waiting[largest].values()
            self.drop(next(entry for entry in of_largest if entry.notice.id not in self._out))

    def postpone(self, waiting: WaitingNotice, due_ms: Millis) -> None:
        """Have a notice that was tried in vain tried again later."""
        self._out.discard(waiting.notice.id)
        self._put(replace(waiting, due_ms=due_ms, tries=waiting.tries + 1))

    def done(self, waiting: WaitingNotice) -> None:
        """Forget a notice that its receiver took."""
        self._out.discard(waiting.notice.id)
        self.sent[waiting.notice.receiver] += 1
        self._remove(waiting)

    def drop(self, waiting: WaitingNotice) -> None:
        """Forget a notice that is not sent, and count it."""
        self.dropped[waiting.notice.receiver] += 1
        self._remove(waiting)

    def flush(self) -> None:
        """Store what has changed.

        Raises:
            StorageError: The database refused; the next flush stores it.
        """
        changed = self._changed
        marks = {_READ: self.read} if self.read is not None else {}
        marks |= {_SENT + name: count for name, count in self.sent.items()}
        marks |= {_DROPPED + name: count for name, count in self.dropped.items()}
        kept = [_row(entry) for entry in changed.values() if entry is not None]
        gone = [name for name, entry in changed.items() if entry is None]
        values = [{"name": name, "value": value} for name, value in marks.items()]
        dialect = self._engine.dialect.name
        with self._transaction() as connection:
            for start in range(0, len(gone), _AT_ONCE):
                names = gone[start : start + _AT_ONCE]
                connection.execute(delete(NOTICES).where(NOTICES.c.id.in_(names)))
            if kept:
                connection.execute(upsert(NOTICES, dialect), rows.sealed(NOTICES, kept))
            if self.read is None:
                connection.execute(delete(NOTICE_MARKS).where(NOTICE_MARKS.c.name == _READ))
            if values:
                sealed = rows.sealed(NOTICE_MARKS, values)
                connection.execute(upsert(NOTICE_MARKS, dialect), sealed)
        self._stored.difference_update(gone)
        self._stored.update(row["id"] for row in kept)
        self._changed.clear()

    def newest_event(self) -> int:
        """The number of the newest event of the feed; 0 if there is none.

        Raises:
            StorageError: The database cannot be read.
        """
        with self._transaction() as connection:
            return int(connection.scalar(select(func.max(FEED.c.number))) or 0)

    def told_before(self, event: FeedEvent) -> bool:
        """Whether an earlier event was about the same failure of the same job, or its end.

        Raises:
            StorageError: The database cannot be read.
        """
        feed = FEED.c
        query = select(feed.number).where(
            feed.job == event.job,
            feed.number < event.number,
            feed.kind == event.kind.value,
            feed.failure == event.failure,
        )
        with self._transaction() as connection:
            return connection.scalar(query.limit(1)) is not None

    def _alike(self, notice: Notice) -> WaitingNotice | None:
        """A notice about the same topic of the cluster that waits, if it was never tried."""
        return next(
            (
                entry
                for entry in self.of(notice.receiver)
                if not entry.tries
                and entry.notice.counts_along
                and entry.notice.topic == notice.topic
                and entry.notice.id not in self._out
            ),
            None,
        )

    def _put(self, waiting: WaitingNotice) -> None:
        name = waiting.notice.id
        of_receiver = self._waiting[waiting.notice.receiver]
        self._size += name not in of_receiver
        of_receiver[name] = waiting
        self._changed[name] = waiting

    def _remove(self, waiting: WaitingNotice) -> None:
        name = waiting.notice.id
        del self._waiting[waiting.notice.receiver][name]
        self._size -= 1
        if name in self._stored:
            self._changed[name] = None
        else:
            del self._changed[name]

    def _load(self, receivers: Collection[str]) -> None:
        with self._transaction() as connection, typed():
            marks = rows.intact(NOTICE_MARKS, connection.execute(select(NOTICE_MARKS)).all())
            stored = rows.intact(NOTICES, connection.execute(select(NOTICES)).all())
            entries = [_waiting(row) for row in stored]
        for name, value, _ in marks:
            if name == _READ and receivers:  # Where nobody listens, the place is forgotten.
                self.read = value
            for prefix, counts in ((_SENT, self.sent), (_DROPPED, self.dropped)):
                if name.startswith(prefix):
                    counts[name.removeprefix(prefix)] = value
        for entry in sorted(entries, key=lambda entry: (entry.since_ms, entry.notice.id)):
            self._stored.add(entry.notice.id)
            self._put(entry)
        self._changed.clear()
        for name in [name for name in self._waiting if name not in receivers]:
            for entry in list(self.of(name)):
                self._remove(entry)

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with translated(self._engine.url), self._engine.begin() as connection:
            yield connection


def _row(waiting: WaitingNotice) -> dict[str, Any]:
    record = {"since_ms": waiting.since_ms, "notice": asdict(waiting.notice)}
    return {
        "id": waiting.notice.id,
        "receiver": waiting.notice.receiver,
        "due_ms": waiting.due_ms,
        "tries": waiting.tries,
        "record": json.dumps(record),
    }


def _waiting(row: Any) -> WaitingNotice:
    record = json.loads(row.record)
    return WaitingNotice(Notice(**record["notice"]), record["since_ms"], row.due_ms, row.tries)
