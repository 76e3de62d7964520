"""Parts of a log: its end, what came last, an attempt, and from where reading broke off."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from eva_master.control.state.store import State
from eva_master.model.arithmetic.loop_time import WallClock
from eva_master.model.records import PastAttempt
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
_DAY_S = 86_400
STORED = {1: b"one\ntwo\n", 2: b"three\nfour\n"}


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[RpcMaster]:
    async with rpc_master(tmp_path) as running:
        yield running


async def store(master: RpcMaster, stored: Mapping[int, bytes] = STORED) -> None:
    for attempt, data in stored.items():
        await master.store.put(f"jobs/{RUN}/logs/{attempt:04d}/{0:016d}", data)


def runs(state: State) -> None:
    """The second attempt runs, after a first one that moved."""
    add_job(state, spec("resnet"))
    add_instance(state, "i-1")
    run = state.runs[RUN].to(RunState.STARTING, Millis(7_000)).to(RunState.RUNNING, Millis(8_000))
    place = InstanceId("i-1")
    past = PastAttempt(1, 1_000, 6_000, "it moved to i-1")
    places = ((1, InstanceId("i-0")), (2, place))
    state.put_run(
        replace(run, attempt=2, instance=place, target=place, places=places, past=(past,))
    )


def waits(state: State) -> None:
    run = state.runs[RUN].to(RunState.WAITING, Millis(9_000))
    state.put_run(replace(run, instance=None, target=None))


async def chunks(master: RpcMaster, **asked: object) -> list[pb.LogChunk]:
    stream = master.jobs.Logs(pb.LogsRequest(job=JOB, **asked))  # type: ignore[arg-type]
    async with asyncio.timeout(DEADLINE_S):
        return [chunk async for chunk in stream]


async def text(master: RpcMaster, **asked: object) -> bytes:
    return b"".join(chunk.data for chunk in await chunks(master, **asked))


async def say(agent: Agent, offset: int, data: bytes) -> None:
    """Answer the next question of a log, and end."""
    follow = (await agent.hear()).follow
    chunk = wpb.LogChunk(stream_id=follow.stream_id, data=data, offset=offset, end=True)
    await agent.say(log=chunk)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (0, b""),
        (1, b"four\n"),
        (2, b"three\nfour\n"),
        (3, b"two\nthree\nfour\n"),
        (9, b"one\ntwo\nthree\nfour\n"),
    ],
)
async def test_the_last_lines_are_cut_where_the_log_is(
    master: RpcMaster, lines: int, told: bytes
) -> None:
    await master.loop.change(runs)
    await master.loop.change(waits)
    await store(master)
    assert await text(master, tail=lines) == told


async def test_the_last_lines_are_those_of_the_worker_too_and_following_goes_on(
    master: RpcMaster,
) -> None:
    agent = await master.welcomed()
    await master.loop.change(runs)
    await store(master)
    reading = asyncio.ensure_future(text(master, tail=2, follow=True))
    await say(agent, 11, b"five\n")
    follow = (await agent.hear()).follow
    assert (follow.offset, follow.once) == (16, False)
    chunk = wpb.LogChunk(stream_id=follow.stream_id, data=b"six\n", offset=16, end=True)
    await agent.say(log=chunk)
    await store(master, {2: b"three\nfour\nfive\nsix\n"})

    def ends(state: State) -> None:
        run = state.runs[RUN].to(RunState.SUCCEEDED, Millis(9_000))
        state.put_run(replace(run, instance=None, target=None))
        job = state.jobs[JOB].to(JobState.ENDING, Millis(9_000))
        state.put_job(job.to(JobState.SUCCEEDED, Millis(9_000)))

    await master.loop.change(ends)
    assert await reading == b"four\nfive\nsix\n"


async def test_a_chunk_says_where_it_belongs_and_what_its_attempt_was(master: RpcMaster) -> None:
    await master.loop.change(runs)
    await master.loop.change(waits)
    await store(master)
    first, second = await chunks(master)
    assert (first.attempt, first.offset, first.begins.instance) == (1, 0, "i-0")
    assert (second.attempt, second.offset) == (2, 0)
    begins = second.begins
    assert (begins.number, begins.instance, begins.started_ms) == (2, "i-1", 7_000)
    assert (begins.ended, begins.ended_ms) == ("it moved to i-1", 6_000)


async def test_reading_goes_on_from_a_position(master: RpcMaster) -> None:
    await master.loop.change(runs)
    await master.loop.change(waits)
    await store(master)
    assert await text(master, from_attempt=1, from_offset=4) == b"two\nthree\nfour\n"
    assert await text(master, from_attempt=2, from_offset=6) == b"four\n"
    assert await text(master, from_attempt=2, from_offset=11) == b""


async def test_the_attempt_before_is_told_alone(master: RpcMaster) -> None:
    await master.loop.change(runs)
    await store(master)
    assert await text(master, previous=True) == b"one\ntwo\n"
    assert await text(master, previous=True, tail=1) == b"two\n"


async def test_without_an_attempt_before_that_is_said(master: RpcMaster) -> None:
    await master.loop.change(lambda state: add_job(state, spec("resnet")))
    await store(master, {1: b"one\n"})
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await chunks(master, previous=True)
    assert "no log of an attempt before" in str(failed.value.details())


async def test_what_was_stored_lately_is_told_by_the_masters_clock(master: RpcMaster) -> None:
    await master.loop.change(runs)
    await master.loop.change(waits)
    await store(master)
    assert await text(master, last_ms=10**15) == b"one\ntwo\nthree\nfour\n"


async def test_what_was_stored_lately_is_told_though_the_wall_clock_was_set_back(
    master: RpcMaster, tmp_path: Path
) -> None:
    def set_back(state: State) -> None:
        state.wall = WallClock(-_DAY_S * 1_000)

    await master.loop.change(runs)
    await master.loop.change(waits)
    await store(master)
    for file in (tmp_path / "objects" / "jobs").rglob("*"):
        then = file.stat().st_mtime - _DAY_S
        os.utime(file, (then, then))
    assert await text(master, last_ms=_DAY_S * 500) == b""
    await master.loop.change(set_back)
    assert await text(master, last_ms=_DAY_S * 500) == b"one\ntwo\nthree\nfour\n"
