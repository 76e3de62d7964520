"""A task's log over its moves: from the worker while it runs, from the store otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import grpc
import pytest

from eva_master.adapters.objects.task_logs import StoredLogs
from eva_master.control.state.store import State
from eva_master.ports import ObjectStore
from eva_wire._proto import api_pb2 as pb
from eva_wire._proto import worker_pb2 as wpb
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId
from eva_wire.values.states import JobState, RunState
from tests.fakes.rpc.server import (
    DEADLINE_S,
    Agent,
    RpcMaster,
    add_instance,
    add_job,
    rpc_master,
    spec,
)

JOB = JobId("resnet-1")
RUN = RunId("resnet-1/0")


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[RpcMaster]:
    async with rpc_master(tmp_path) as running:
        yield running


async def store_log(master: RpcMaster, attempt: int, offset: int, data: bytes) -> None:
    await master.store.put(f"jobs/{RUN}/logs/{attempt:04d}/{offset:016d}", data)


def starts(state: State, attempt: int, instance: str) -> None:
    """The task run's next attempt is handed to an instance, which is made if need be."""
    place = InstanceId(instance)
    if place not in state.instances:
        add_instance(state, instance)
    run = state.runs[RUN].to(RunState.STARTING, Millis(attempt))
    state.put_run(replace(run, attempt=attempt, instance=place, target=place))


def runs(state: State, attempt: int, instance: str) -> None:
    """The task run's next attempt runs on an instance."""
    starts(state, attempt, instance)
    state.put_run(state.runs[RUN].to(RunState.RUNNING, Millis(attempt)))


def waits(state: State) -> None:
    """The attempt is over; the task run waits."""
    run = state.runs[RUN].to(RunState.WAITING, Millis(9))
    state.put_run(replace(run, instance=None, target=None))


def ends(state: State) -> None:
    """The task succeeded, and the job with it."""
    run = state.runs[RUN].to(RunState.SUCCEEDED, Millis(9))
    state.put_run(replace(run, instance=None, target=None))
    job = state.jobs[JOB].to(JobState.ENDING, Millis(9)).to(JobState.SUCCEEDED, Millis(9))
    state.put_job(job)


async def logs(master: RpcMaster, *, follow: bool) -> bytes:
    stream = master.jobs.Logs(pb.LogsRequest(job=JOB, follow=follow))
    async with asyncio.timeout(DEADLINE_S):
        return b"".join([chunk.data async for chunk in stream])


async def followed(agent: Agent) -> wpb.FollowLog:
    message = await agent.hear()
    assert message.HasField("follow")
    return message.follow


async def say(
    agent: Agent, follow: wpb.FollowLog, offset: int, data: bytes, *, end: bool = False
) -> None:
    chunk = wpb.LogChunk(stream_id=follow.stream_id, data=data, offset=offset, end=end)
    await agent.say(log=chunk)


async def test_the_log_of_an_ended_job_comes_from_the_store_each_byte_once(
    master: RpcMaster,
) -> None:
    await master.loop.change(lambda state: add_job(state, spec("resnet")))
    await master.loop.change(lambda state: (runs(state, 2, "i-1"), ends(state)))
    await store_log(master, 1, 0, b"one ")
    await store_log(master, 1, 4, b"two ")
    await store_log(master, 2, 0, b"three ")
    # An agent that restarted uploaded these bytes again, with more.
    await store_log(master, 2, 3, b"ee four")
    for follow in (False, True):
        assert await logs(master, follow=follow) == b"one two three four"


async def test_a_task_or_job_that_is_not_there_has_no_log(master: RpcMaster) -> None:
    await master.loop.change(lambda state: add_job(state, spec("resnet")))
    for request in (pb.LogsRequest(job=JOB, task=1), pb.LogsRequest(job="nope")):
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await master.jobs.Logs(request).read()
        assert failed.value.code() is grpc.StatusCode.NOT_FOUND


async def test_without_follow_a_running_log_ends_with_what_is_there(master: RpcMaster) -> None:
    agent = await master.welcomed()
    await master.loop.change(lambda state: add_job(state, spec("resnet")))
    await master.loop.change(lambda state: runs(state, 2, "i-1"))
    await store_log(master, 1, 0, b"before ")
    # The worker has more of this attempt than the store.
    await store_log(master, 2, 0, b"no")
    reading = asyncio.ensure_future(logs(master, follow=False))
    follow = await followed(agent)
    assert (follow.run_id, follow.offset, follow.once) == (RUN, 2, True)
    await say(agent, follow, 2, b"w", end=True)
    assert await reading == b"before now"


async def test_what_a_worker_has_let_go_of_comes_from_the_store(master: RpcMaster) -> None:
    agent = await master.welcomed()
    await master.loop.change(lambda state: add_job(state, spec("resnet")))
    await master.loop.change(lambda state: runs(state, 1, "i-1"))
    await store_log(master, 1, 0, b"one ")
    reading = asyncio.ensure_future(logs(master, follow=False))
    follow = await followed(agent)
    assert follow.offset == 4
    # While the reader was on its way the task wrote on, and the worker cut its log.
    await store_log(master, 1, 4, b"two three")
    await say(agent, follow, 8, b"three four", end=True)
    assert await reading == b"one two three four"


async def test_log_of_a_task_that_is_being_started_is_read(master: RpcMaster) -> None:
    agent = await master.welcomed()
    await master.loop.change(lambda state: add_job(state, spec("resnet")))
    await master.loop.change(lambda state: starts(state, 1, "i-1"))
    reading = asyncio.ensure_future(logs(master, follow=False))
    await say(agent, await followed(agent), 0, b"fetching image", end=True)
    assert await reading == b"fetching image"


async def test_a_worker_that_is_not_connected_leaves_what_is_stored(master: RpcMaster) -> None:
    await master.loop.change(lambda state: add_job(state, spec("resnet")))
    await master.loop.change(lambda state: (runs(state, 1, "i-1"), state.sessions.clear()))
    await store_log(master, 1, 0, b"stored")
    assert await logs(master, follow=False) == b"stored"


async def test_a_followed_log_goes_on_over_a_move_without_loss_or_repetition(
    master: RpcMaster,
) -> None:
    first, second = await master.welcomed("i-1"), await master.welcomed("i-2")
    await master.loop.change(lambda state: add_job(state, spec("resnet")))
    await master.loop.change(lambda state: runs(state, 1, "i-1"))
    reading = asyncio.ensure_future(logs(master, follow=True))
    follow = await followed(first)
    assert not follow.once
    await say(first, follow, 0, b"a1 ")
    # The session breaks; what the attempt said afterwards is in the store when it has stopped.
    first.call.cancel()
    await store_log(master, 1, 0, b"a1 a")
    await store_log(master, 1, 4, b"2 ")
    await master.loop.change(waits)
    await master.loop.change(lambda state: runs(state, 2, "i-2"))
    follow = await followed(second)
    assert follow.offset == 0
    await say(second, follow, 0, b"b1 ")
    await say(second, follow, 3, b"b2", end=True)
    await store_log(master, 2, 0, b"b1 b2")
    await master.loop.change(ends)
    assert await reading == b"a1 a2 b1 b2"


async def test_a_worker_that_comes_back_is_asked_from_where_it_broke_off(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eva_master.adapters.rpc.server.logs._RETRY_S", 0.05)
    agent = await master.welcomed()
    await master.loop.change(lambda state: add_job(state, spec("resnet")))
    await master.loop.change(lambda state: runs(state, 1, "i-1"))
    reading = asyncio.ensure_future(logs(master, follow=True))
    await say(agent, await followed(agent), 0, b"before ")
    again = await master.welcomed()
    follow = await followed(again)
    assert follow.offset == 7
    # No record changed: only the retry finds the worker back.
    await say(again, follow, 7, b"after", end=True)
    await store_log(master, 1, 0, b"before after")
    await master.loop.change(ends)
    assert await reading == b"before after"


async def test_a_large_log_comes_in_small_pieces(master: RpcMaster) -> None:
    await master.loop.change(lambda state: add_job(state, spec("resnet")))
    await master.loop.change(lambda state: (runs(state, 1, "i-1"), ends(state)))
    await store_log(master, 1, 0, b"x" * 6_000_000)
    stream = master.jobs.Logs(pb.LogsRequest(job=JOB))
    sizes = [len(chunk.data) async for chunk in stream]
    assert sum(sizes) == 6_000_000
    assert max(sizes) <= 256 * 1024


async def test_readers_of_one_log_share_the_listing_of_what_is_stored() -> None:
    """A log may have thousands of objects, and a user a thousand readers who look every 2 s."""
    keys = [f"jobs/{RUN}/logs/{attempt:04d}/{0:016d}" for attempt in (1, 2)]
    begun: list[int] = []
    go = asyncio.Event()

    class Slow:
        async def list(self, _: str) -> list[str]:
            begun.append(len(keys))
            there = [*keys]
            await go.wait()
            return there

    listings = StoredLogs(cast("ObjectStore", Slow()))
    first = [asyncio.create_task(listings.chunks(RUN)) for _ in range(100)]
    async with asyncio.timeout(DEADLINE_S):
        while not begun:
            await asyncio.sleep(0.01)
    keys.append(f"jobs/{RUN}/logs/0003/{0:016d}")
    # What comes after a listing has begun may be missing in it.
    later = [asyncio.create_task(listings.chunks(RUN)) for _ in range(100)]
    await asyncio.sleep(0)
    for gone in (first[0], later[0]):
        gone.cancel()
    go.set()
    async with asyncio.timeout(DEADLINE_S):
        assert {len(found) for found in await asyncio.gather(*first[1:])} == {2}
        assert {len(found) for found in await asyncio.gather(*later[1:])} == {3}
    assert begun == [2, 3]


async def test_what_is_no_part_of_a_log_is_passed_over(master: RpcMaster) -> None:
    """An agent that is not ours any more may store what it likes."""
    await master.loop.change(lambda state: add_job(state, spec("resnet")))
    for odd in ("0001/x", "x/0000000000000000", "0001/" + "9" * 5_000, "0001/-1"):
        await master.store.put(f"jobs/{RUN}/logs/{odd[:200]}", b"odd")
    await store_log(master, 1, 0, b"good")
    assert await logs(master, follow=False) == b"good"
