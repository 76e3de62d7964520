"""The feed of events over gRPC: newest first pages, following, and what may be named."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from eva_master.control.state.store import State
from eva_master.model.feed import FeedEvent, FeedKind
from eva_wire._proto import api_pb2 as pb
from eva_wire.values.ids import Millis
from tests.fakes.patience import DEADLINE_S
from tests.fakes.rpc.server import RpcMaster, add_instance, add_job, rpc_master, spec


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[RpcMaster]:
    async with rpc_master(tmp_path) as running:
        yield running


def told(state: State, count: int, *, job: str = "", instance: str = "") -> None:
    """Add events as a turn does."""
    last = state.count(events=count).events
    state.feed.extend(
        FeedEvent(number, Millis(7), FeedKind.UP, job, "", instance, "", f"text {number}")
        for number in range(last - count + 1, last + 1)
    )


async def numbers(master: RpcMaster, **request: object) -> list[int]:
    pages = master.cluster.Events(pb.EventsRequest(**request))  # type: ignore[arg-type]
    return [event.number async for page in pages for event in page.events]


async def test_all_that_are_kept_or_the_newest_or_those_after_one(master: RpcMaster) -> None:
    await master.loop.change(lambda state: told(state, 1_203))
    assert await numbers(master) == list(range(1, 1_204))
    assert await numbers(master, last=3) == [1_201, 1_202, 1_203]
    assert await numbers(master, after=1_200) == [1_201, 1_202, 1_203]
    assert len(await numbers(master, last=100_000)) == 1_000
    assert await numbers(master, last=3, before=1_201) == [1_198, 1_199, 1_200]
    assert await numbers(master, before=3) == [1, 2]
    assert await numbers(master, before=1) == []
    for wrong in ({"before": -1}, {"before": 7, "follow": True}):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await numbers(master, **wrong)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_follower_is_told_what_comes_and_misses_nothing(master: RpcMaster) -> None:
    await master.loop.change(lambda state: told(state, 2))
    call = master.cluster.Events(pb.EventsRequest(last=1, follow=True))
    pages = aiter(call)
    async with asyncio.timeout(DEADLINE_S):
        assert [event.number for event in (await anext(pages)).events] == [2]
        for _ in range(2):
            await master.loop.change(lambda state: told(state, 2))
        found: list[int] = []
        while len(found) < 4:
            found += [event.number for event in (await anext(pages)).events]
    call.cancel()
    assert found == [3, 4, 5, 6]


async def test_a_job_by_its_name_and_an_instance(master: RpcMaster) -> None:
    def change(state: State) -> None:
        job = add_job(state, spec("train"))
        place = add_instance(state)
        told(state, 1, job=job)
        told(state, 1, instance=place)

    await master.loop.change(change)
    assert await numbers(master, subject="train") == [1]
    assert await numbers(master, subject="i-1") == [2]
    for subject, code in (("nobody", grpc.StatusCode.NOT_FOUND), ("7", None), ("pools", None)):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await numbers(master, subject=subject)
        assert caught.value.code() is (code or grpc.StatusCode.INVALID_ARGUMENT)
