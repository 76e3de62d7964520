"""Events in the journal: pages, filters, and what is deleted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from eva_master.adapters.store import SqlArchive, SqlJournal
from eva_master.model.changes import Changes
from eva_master.model.feed import FeedEvent, FeedKind
from eva_master.ports.reading import FeedPage
from eva_wire.values.errors import StorageError
from eva_wire.values.ids import Millis
from tests.fakes.archive import LoadedArchive

DAY_MS = 86_400_000


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqlJournal]:
    with SqlJournal.open(f"sqlite:///{tmp_path}/j.db", feed_kept_ms=DAY_MS) as opened:
        yield opened


def event(number: int, at_ms: int = 0, *, job: str = "", instance: str = "") -> FeedEvent:
    return FeedEvent(
        number,
        Millis(at_ms),
        FeedKind.UP,
        job,
        "",
        instance,
        "ann" if job else "",
        f"text {number}",
    )


def numbers(journal: SqlJournal, page: FeedPage) -> list[int]:
    found = SqlArchive(journal.engine).events(page)
    kept = SqlArchive(journal.engine).events(FeedPage(most=10_000))
    assert list(LoadedArchive(Changes, kept).events(page)) == list(found), "the fake agrees"
    return [event.number for event in found]


def test_events_come_back_as_they_were(journal: SqlJournal) -> None:
    told = (event(1, 5, job="a-1"), event(2, 6, instance="i1"))
    journal.commit(Changes(feed=told))
    assert tuple(SqlArchive(journal.engine).events(FeedPage())) == told


def test_pages_go_on_after_a_number_or_begin_with_the_newest(journal: SqlJournal) -> None:
    journal.commit(Changes(feed=tuple(map(event, range(1, 8)))))
    assert numbers(journal, FeedPage(most=3)) == [1, 2, 3]
    assert numbers(journal, FeedPage(after=3, most=3)) == [4, 5, 6]
    assert numbers(journal, FeedPage(most=3, newest=True)) == [5, 6, 7]
    assert numbers(journal, FeedPage(after=6, most=3, newest=True)) == [7]
    assert numbers(journal, FeedPage(before=5, most=3, newest=True)) == [2, 3, 4]
    assert numbers(journal, FeedPage(after=1, before=4)) == [2, 3]


def test_a_job_and_an_instance_have_theirs(journal: SqlJournal) -> None:
    journal.commit(
        Changes(
            feed=(
                event(1, job="a-1"),
                event(2, job="a-2"),
                event(3, job="a-1", instance="i1"),
                event(4, instance="i2"),
            )
        )
    )
    assert numbers(journal, FeedPage(job="a-1")) == [1, 3]
    assert numbers(journal, FeedPage(instance="i1")) == [3]
    assert numbers(journal, FeedPage(job="a-1", most=1, newest=True)) == [3]


def test_a_commit_that_is_repeated_writes_events_once(journal: SqlJournal) -> None:
    changes = Changes(feed=(event(1), event(2)))
    journal.commit(changes)
    journal.commit(changes)
    assert numbers(journal, FeedPage()) == [1, 2]


def test_old_events_go_in_the_end(journal: SqlJournal) -> None:
    journal.commit(Changes(feed=tuple(event(number, number) for number in range(1, 999))))
    journal.commit(Changes(feed=(event(999, 2 * DAY_MS),)))
    journal.commit(Changes(feed=(event(1_000, 3 * DAY_MS - 1), event(1_001, 3 * DAY_MS - 1))))
    assert numbers(journal, FeedPage()) == [999, 1_000, 1_001]


def test_a_damaged_event_is_told(journal: SqlJournal) -> None:
    journal.commit(Changes(feed=(event(1),)))
    with journal.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE feed SET text = 'another'")
    with pytest.raises(StorageError, match="feed: '1'"):
        numbers(journal, FeedPage())
