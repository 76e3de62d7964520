"""Notice of an instance's end, asked of a metadata service."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from http import HTTPStatus

import pytest

from eva_worker.link.notices import InterruptionNotice, Metadata, watch
from tests.fakes.aws.metadata import MAINTENANCE, REBALANCE, FakeMetadata
from tests.fakes.patience import DEADLINE_S

NOON = "2026-11-21T12:00:00Z"
NOON_MS = 1_795_262_400_000


@pytest.fixture
def service() -> Iterator[FakeMetadata]:
    service = FakeMetadata()
    yield service
    service.stop()


def test_there_is_none_until_the_service_says_so(service: FakeMetadata) -> None:
    metadata = Metadata(service.url)
    assert metadata.notice() is None
    service.documents[REBALANCE] = b'{"noticeTime": "2026-11-21T11:50:00Z"}'
    assert metadata.notice() == InterruptionNotice(0, "rebalance recommendation")
    service.interrupt(NOON)
    assert metadata.notice() == InterruptionNotice(NOON_MS, "spot interruption: terminate")


def test_maintenance_of_an_instance_is_a_reason_to_leave(service: FakeMetadata) -> None:
    metadata = Metadata(service.url)
    service.documents[MAINTENANCE] = b"[]"
    assert metadata.notice() is None
    event = {
        "NotBefore": "21 Nov 2026 09:00:43 GMT",
        "Code": "instance-retirement",
        "Description": "The instance is running on degraded hardware",
        "EventId": "instance-event-0d59937288b749b32",
    }
    over = {**event, "Code": "system-reboot", "State": "completed"}
    service.documents[MAINTENANCE] = json.dumps([over]).encode()
    assert metadata.notice() is None
    service.documents[MAINTENANCE] = json.dumps([over, {**event, "State": "active"}]).encode()
    words = "maintenance: instance-retirement not before 21 Nov 2026 09:00:43 GMT"
    assert metadata.notice() == InterruptionNotice(0, words)
    service.interrupt(NOON)
    assert metadata.notice() == InterruptionNotice(NOON_MS, "spot interruption: terminate")


def test_a_token_that_is_over_is_replaced(service: FakeMetadata) -> None:
    metadata = Metadata(service.url)
    assert metadata.notice() is None
    service.token = "second"
    service.interrupt(NOON)
    assert metadata.notice() == InterruptionNotice(NOON_MS, "spot interruption: terminate")


async def test_each_notice_is_told_once_and_the_watch_ends_with_an_interruption(
    service: FakeMetadata,
) -> None:
    told: list[InterruptionNotice] = []
    watching = asyncio.create_task(watch(Metadata(service.url), told.append, every_s=0.01))
    async with asyncio.timeout(DEADLINE_S):
        service.status = HTTPStatus.INTERNAL_SERVER_ERROR  # It is out of order, and comes back.
        service.documents[REBALANCE] = b"{}"
        service.status = None
        while not told:
            await asyncio.sleep(0.01)
        asked = service.asked
        while service.asked < asked + 10:
            await asyncio.sleep(0.01)
        assert told == [InterruptionNotice(0, "rebalance recommendation")]
        service.interrupt("not a time")  # Of no use, and no reason to give up.
        while service.asked < asked + 20:
            await asyncio.sleep(0.01)
        service.interrupt(NOON)
        await watching
    assert [notice.at_ms for notice in told] == [0, NOON_MS]


async def test_a_service_that_is_not_there_does_not_end_the_watch(service: FakeMetadata) -> None:
    told: list[InterruptionNotice] = []
    missing = Metadata("http://127.0.0.1:9")
    watching = asyncio.create_task(watch(missing, told.append, every_s=0.01))
    other = asyncio.create_task(watch(Metadata(service.url), told.append, every_s=0.01))
    service.interrupt(NOON)
    async with asyncio.timeout(DEADLINE_S):
        await other
    assert not watching.done()
    watching.cancel()
    assert len(told) == 1


@pytest.mark.parametrize("ahead_s", [-3 * 3600, 0, 2 * 3600])
def test_what_is_left_is_told_by_the_clouds_clock(
    service: FakeMetadata, monkeypatch: pytest.MonkeyPatch, ahead_s: int
) -> None:
    true_s = time.time()
    at = datetime.fromtimestamp(true_s + 120, UTC)
    service.interrupt(f"{at:%Y-%m-%dT%H:%M:%SZ}")
    now_ns = time.time_ns
    monkeypatch.setattr(
        "eva_worker.link.notices.time.time_ns", lambda: now_ns() + ahead_s * 1_000_000_000
    )
    notice = Metadata(service.url).notice()
    assert notice is not None
    passed_ms = (time.time() - true_s) * 1000
    assert 117_000 - passed_ms <= notice.left_ms() <= 122_000
