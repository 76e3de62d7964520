"""Between asyncio and the loop's thread: nothing is lost, nothing grows."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from eva_master.adapters.loop.clock import SystemClock
from eva_master.adapters.loop.gateway import LoopGateway
from eva_master.adapters.loop.inbox import LiveInbox
from eva_master.control.state.store import State
from eva_master.model.actions import Reply
from eva_master.model.changes import Changes
from eva_master.model.events import CancelRequested, Tick
from eva_master.model.records import Job
from eva_master.ports.reading import ReadModel
from eva_wire._proto import api_pb2 as pb
from eva_wire.values.errors import NotFound
from eva_wire.values.ids import JobId, Millis
from eva_wire.values.states import JobState
from tests.fakes.models import model_of
from tests.fakes.rpc.server import DEADLINE_S, RpcMaster, add_job, rpc_master, spec


def changed(*jobs: str) -> Changes:
    history = ((JobState.PENDING.value, 1),)
    return Changes(jobs=tuple(Job(JobId(job), spec(job), Millis(1), history) for job in jobs))


def nothing() -> ReadModel:
    """A model of an empty cluster."""
    return model_of(State(()))


@pytest.fixture
def inbox() -> LiveInbox:
    return LiveInbox(SystemClock())


@pytest.fixture
def gateway(inbox: LiveInbox) -> LoopGateway:
    return LoopGateway(inbox)


def test_everything_that_was_posted_comes_at_once_and_in_order(inbox: LiveInbox) -> None:
    events = [CancelRequested(str(number), JobId("a")) for number in range(100)]
    for event in events:
        inbox.post(event)
    assert inbox.wait(None) == events
    assert inbox.received == 100


class SlowClock:
    """Gains a millisecond whenever somebody looks: slower than the queue's own time."""

    def __init__(self) -> None:
        self.time = 0

    def now(self) -> Millis:
        self.time += 1
        return Millis(self.time)


def test_a_wait_ends_when_its_time_has_come_by_the_clock_and_not_before() -> None:
    clock = SlowClock()
    inbox = LiveInbox(clock)
    assert inbox.wait(Millis(0)) == ()
    assert clock.time < 5
    assert inbox.wait(Millis(20)) == ()
    assert clock.time >= 20


def test_a_post_wakes_the_waiting_thread(inbox: LiveInbox) -> None:
    heard: list[object] = []
    thread = threading.Thread(target=lambda: heard.extend(inbox.wait(None)))
    thread.start()
    inbox.post(Tick())
    thread.join(DEADLINE_S)
    assert heard == [Tick()]


async def test_commands_with_the_same_id_all_get_the_answer(gateway: LoopGateway) -> None:
    command = CancelRequested("c", JobId("a"))
    waiting = [asyncio.ensure_future(gateway.command(command)) for _ in range(3)]
    await asyncio.sleep(0)
    reply = Reply("c", JobId("a"))
    # The machine answers each of them.
    for _ in range(3):
        await asyncio.to_thread(gateway.reply, reply)
    assert await asyncio.gather(*waiting) == [reply] * 3
    assert gateway._waiting == {}


async def test_a_refused_command_raises_and_an_abandoned_one_is_forgotten(
    gateway: LoopGateway,
) -> None:
    refused = asyncio.ensure_future(gateway.command(CancelRequested("c", JobId("a"))))
    abandoned = asyncio.ensure_future(gateway.command(CancelRequested("d", JobId("a"))))
    await asyncio.sleep(0)
    abandoned.cancel()
    gateway.reply(Reply("c", None, NotFound("gone")))
    with pytest.raises(NotFound):
        await refused
    with pytest.raises(asyncio.CancelledError):
        await abandoned
    gateway.reply(Reply("d", None))
    assert gateway._waiting == {}


async def test_what_a_read_raises_travels_back(gateway: LoopGateway) -> None:
    def fails(_: ReadModel) -> None:
        raise NotFound("no such thing")

    gateway.publish(Changes(), lambda: model_of(State(())))
    with pytest.raises(NotFound):
        await gateway.read(fails)


async def test_a_read_waits_for_the_first_model_and_for_no_other(gateway: LoopGateway) -> None:
    state = State(())
    first, second = model_of(state), model_of(state)
    waiting = asyncio.ensure_future(gateway.model())
    given_up = asyncio.ensure_future(gateway.model())
    await asyncio.sleep(0)
    assert not waiting.done()
    with pytest.raises(TimeoutError):
        gateway.latest(0.0)
    given_up.cancel()
    await asyncio.to_thread(gateway.publish, Changes(), lambda: first)
    assert await waiting is first
    await asyncio.to_thread(gateway.publish, Changes(), lambda: second)
    assert await gateway.model() is gateway.latest() is second


async def test_a_read_posts_nothing_to_the_loop_and_does_not_run_in_its_thread(
    gateway: LoopGateway, inbox: LiveInbox
) -> None:
    gateway.publish(Changes(), lambda: model_of(State(())))
    ran_in = await gateway.read(lambda _: threading.current_thread())
    assert ran_in is not threading.current_thread()
    assert inbox.wait(Millis(0)) == ()


async def test_a_slow_watcher_gets_each_job_once(gateway: LoopGateway) -> None:
    with gateway.watch() as watch:
        for _ in range(1000):
            await asyncio.to_thread(gateway.publish, changed("a", "b"), nothing)
        assert await anext(watch) == {"a", "b"}
        await asyncio.to_thread(gateway.publish, changed("c"), nothing)
        assert await anext(watch) == {"c"}
        # One wake-up was enough: nothing is left over.
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await anext(watch)


async def test_a_watch_is_woken_by_its_own_jobs_alone_and_ends(gateway: LoopGateway) -> None:
    with gateway.watch({JobId("b")}) as watch:
        gateway.publish(changed("a"), nothing)
        gateway.publish(changed("a", "b"), nothing)
        assert await anext(watch) == {"b"}
    assert not gateway._watches
    gateway.publish(changed("b"), nothing)


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[RpcMaster]:
    async with rpc_master(tmp_path) as running:
        yield running


@pytest.mark.parametrize("busy", [False, True])
async def test_a_user_who_hangs_up_leaves_no_watch_behind(master: RpcMaster, busy: bool) -> None:
    await master.loop.change(lambda state: [add_job(state, spec(f"j{n}")) for n in range(500)])
    stream = master.jobs.Watch(pb.WatchRequest())
    left = 500 if not busy else 1
    while left > 0:
        job = await stream.read()
        left -= 1 + len(job.also)
    assert len(master.loop.gateway._watches) == 1
    stream.cancel()
    async with asyncio.timeout(DEADLINE_S):
        while master.loop.gateway._watches:
            await asyncio.sleep(0.01)
    with pytest.raises(asyncio.CancelledError):
        await stream.code() and await stream.read()
    assert await stream.code() is grpc.StatusCode.CANCELLED
