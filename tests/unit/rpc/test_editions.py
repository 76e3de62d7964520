"""Streams of all jobs: what is encoded, what is sent, and what is kept of those who do not read."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from typing import cast

import pytest

from eva_master.adapters.loop.clock import SystemClock
from eva_master.adapters.loop.gateway import LoopGateway
from eva_master.adapters.loop.inbox import LiveInbox
from eva_master.adapters.rpc.server.job_messages import JobMessage, JobMessages
from eva_master.adapters.rpc.server.watching import editions
from eva_master.adapters.rpc.server.watching.editions import Editions, batches
from eva_master.model.changes import Changes
from eva_master.ports.reading import ReadModel
from eva_wire._proto import api_pb2 as pb
from eva_wire.rpc.errors import TooSlow
from eva_wire.values.ids import JobId


class NoJobs:
    """A model of a cluster in which no job is active."""

    def newest(self, before: JobId | None = None) -> Sequence[object]:
        return ()


class Encoder:
    """Encodes jobs, each with how often it has changed, and counts that."""

    def __init__(self) -> None:
        self.versions: dict[JobId, int] = {}
        self.made: list[JobId] = []

    async def all(self, names: Sequence[JobId]) -> AsyncIterator[JobMessage]:
        for name in names:
            self.made.append(name)
            data = pb.Job(id=name, failures=self.versions[name]).SerializeToString()
            yield JobMessage(name, data, over=False)


class Cluster:
    """Jobs that change, and editions whose pauses end when the test says so."""

    def __init__(self) -> None:
        self.gateway = LoopGateway(LiveInbox(SystemClock()))
        self.encoder = Encoder()
        self.paused = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.editions = Editions(
            self.gateway, cast("JobMessages", self.encoder), self._pause, self._wait
        )
        self.waits: Counter[float] = Counter()
        self.gateway.publish(Changes(), self._model)

    def _model(self) -> ReadModel:
        return cast("ReadModel", NoJobs())

    async def _pause(self) -> None:
        self.paused.set()
        await self.goes_on.wait()
        self.goes_on.clear()

    async def _wait(self, seconds: float) -> None:
        self.waits[seconds] += 1

    def change(self, *names: str) -> None:
        jobs = tuple(map(JobId, names))
        for job in jobs:
            self.encoder.versions[job] = self.encoder.versions.get(job, 0) + 1
        self.gateway.publish(Changes(explained=jobs), self._model)

    async def edition(self, *names: str) -> None:
        """Change jobs, and wait until readers are told."""
        self.change(*names)
        if self.paused.is_set():
            self.paused.clear()
            self.goes_on.set()
        await self.paused.wait()


@pytest.fixture
async def cluster() -> Cluster:
    return Cluster()


def jobs_in(data: bytes) -> dict[str, int]:
    """The jobs of a message, with how often they had changed."""
    job = pb.Job.FromString(data)
    return {it.id: it.failures for it in (job, *job.also)}


async def test_a_change_is_encoded_once_for_a_thousand_readers(cluster: Cluster) -> None:
    with ExitStack() as open_:
        readers = [aiter(open_.enter_context(cluster.editions.read())) for _ in range(1_000)]
        waiting = [asyncio.ensure_future(anext(it)) for it in readers]
        await asyncio.sleep(0)
        await cluster.edition("a", "b")
        assert await asyncio.gather(*waiting) == [waiting[0].result()] * 1_000
        assert jobs_in(waiting[0].result()) == {"a": 1, "b": 1}
        assert cluster.encoder.made == ["a", "b"]


@pytest.mark.parametrize("readers", [20, 1_000, 4_000])
async def test_readers_are_sent_an_edition_in_portions_before_the_next_one(
    cluster: Cluster, readers: int
) -> None:
    with ExitStack() as open_:
        each = [aiter(open_.enter_context(cluster.editions.read())) for _ in range(readers)]
        for name in ("a", "b"):
            waiting = [asyncio.ensure_future(anext(messages)) for messages in each]
            await asyncio.sleep(0)
            await cluster.edition(name)
            await asyncio.gather(*waiting)
            assert max(cluster.waits.values(), default=0) <= 50
            assert sum(cluster.waits.values()) == max(0, readers - 50)
            assert max(cluster.waits, default=0) <= 0.8
            cluster.waits.clear()


async def test_all_that_changes_between_two_editions_comes_in_one_message(
    cluster: Cluster,
) -> None:
    with cluster.editions.read() as reader:
        messages = aiter(reader)
        first = asyncio.ensure_future(anext(messages))
        await asyncio.sleep(0)
        await cluster.edition("a")
        assert jobs_in(await first) == {"a": 1}
        second = asyncio.ensure_future(anext(messages))
        for number in range(100):
            cluster.change("a", f"b{number % 10}")
            await asyncio.sleep(0)
        assert not second.done()
        cluster.goes_on.set()
        assert jobs_in(await second) == {"a": 101, **{f"b{n}": 10 for n in range(10)}}
        assert len(cluster.encoder.made) == 1 + 11
        third = asyncio.ensure_future(anext(messages))
        await asyncio.sleep(0)
        assert not third.done()
        third.cancel()


async def test_a_reader_that_is_behind_gets_the_latest_of_each_job_once(cluster: Cluster) -> None:
    with cluster.editions.read() as slow:
        messages = aiter(slow)
        first = asyncio.ensure_future(anext(messages))
        await asyncio.sleep(0)
        await cluster.edition("a")
        await first
        for number in range(50):
            await cluster.edition("a", f"b{number % 5}")
        made = len(cluster.encoder.made)
        assert jobs_in(await anext(messages)) == {"a": 51, **{f"b{n}": 10 for n in range(5)}}
        # Nothing was made for it, and nothing is kept of it but a number, until it read.
        assert len(cluster.encoder.made) == made + 6
        last = asyncio.ensure_future(anext(messages))
        await asyncio.sleep(0)
        assert not last.done()
        last.cancel()


async def test_a_reader_that_is_far_behind_is_told_all_of_it_in_parts(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(editions, "_JOBS_AT_ONCE", 7)
    with cluster.editions.read() as slow:
        messages = aiter(slow)
        first = asyncio.ensure_future(anext(messages))
        await asyncio.sleep(0)
        await cluster.edition("a")
        await first
        for number in range(40):
            await cluster.edition(f"b{number}")
        seen: dict[str, int] = {}
        while len(seen) < 40:
            part = jobs_in(await anext(messages))
            assert len(part) <= 7
            assert not part.keys() & seen.keys()
            seen |= part
        assert seen == {f"b{number}": 1 for number in range(40)}


async def test_a_reader_who_has_missed_too_much_is_told_to_begin_anew(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(editions, "_KEPT_CHANGES", 10)
    with cluster.editions.read() as slow:
        messages = aiter(slow)
        first = asyncio.ensure_future(anext(messages))
        await asyncio.sleep(0)
        await cluster.edition("a")
        await first
        for number in range(20):
            await cluster.edition(f"b{number}")
        assert len(cluster.editions._last) == 10
        with pytest.raises(TooSlow, match="changed since"):
            await anext(messages)


async def test_a_watch_that_ends_at_once_leaves_nothing_behind(cluster: Cluster) -> None:
    for _ in range(3):
        with cluster.editions.read():
            assert len(cluster.gateway._watches) == 1
        assert not cluster.gateway._watches
        assert not cluster.gateway._of_job
    with cluster.editions.read() as reader:
        message = asyncio.ensure_future(anext(aiter(reader)))
        await asyncio.sleep(0)
        await cluster.edition("a")
        assert jobs_in(await message) == {"a": 1}


async def test_jobs_of_all_sizes_are_put_together_into_messages_that_are_small() -> None:
    choose = random.Random(7)
    sizes = [0, 1, 126, 127, 128, 129, 16_383, 16_384, 65_000, 65_536, 200_000]
    sizes += [choose.randrange(40_000) for _ in range(50)]
    choose.shuffle(sizes)
    made = [pb.Job(id=f"j{n}", reason="x" * size) for n, size in enumerate(sizes)]

    class Messages:
        async def all(self, names: Sequence[JobId]) -> AsyncIterator[JobMessage]:
            for job in made:
                yield JobMessage(JobId(job.id), job.SerializeToString(), over=False)

    sent = [it async for it in batches(cast("JobMessages", Messages()), ())]
    received = []
    for data in sent:
        job = pb.Job.FromString(data)
        received += [job, *job.also]
        assert len(data) <= 64 * 1024 or not job.also
    for job in received:
        job.ClearField("also")
    assert received == made
