"""Users and agents that make many calls, send much and read nothing: others are unharmed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from structlog.testing import capture_logs

from eva_master.adapters.rpc.attach import attachments as tickets
from eva_master.adapters.rpc.attach.attachments import AttachLimits
from eva_master.adapters.rpc.attach.relay import End
from eva_master.adapters.rpc.server.attaching import service
from eva_wire._proto import attach_pb2 as pb
from eva_wire._proto import worker_pb2 as wpb
from eva_wire._proto.api_pb2_grpc import JobsStub
from eva_wire._proto.worker_pb2_grpc import WorkersStub
from eva_wire.rpc.errors import BadRequest
from eva_wire.values.errors import Busy
from eva_wire.values.ids import InstanceId
from eva_wire.values.users import Role
from tests.fakes.rpc.attaching import HERE, Attached, AttachWorld, attach_world
from tests.integration.attach.test_attach_ends import refused, until

MANY = 1_000
OSCAR = {"owner": "oscar", "role": Role.OPERATOR}
EXEC = pb.Kind(exec=pb.Exec(command=["true"]))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[AttachWorld]:
    async with attach_world(tmp_path) as running:
        yield running


async def works(world: AttachWorld) -> bool:
    """Whether another user gets into the task."""
    return (await world.attach("true", **OSCAR).end()).code == 0


async def statuses(calls: list[grpc.aio.StreamStreamCall]) -> set[grpc.StatusCode]:
    """How calls have ended."""
    return set(await asyncio.gather(*(call.code() for call in calls)))


async def test_a_user_who_opens_and_says_nothing_is_cut_off(
    world: AttachWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_FIRST_FRAME_S", 3.0)
    channel = world.master.channel_of("ana", Role.USER)
    calls = [JobsStub(channel).Attach() for _ in range(MANY)]
    assert await works(world)
    invalid, exhausted = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED
    assert await statuses(calls) <= {invalid, exhausted}
    assert len(world.wishes) == 1


async def test_a_user_has_so_many_commands_and_others_have_theirs(world: AttachWorld) -> None:
    world.master.sessions.attachments._limits = AttachLimits(user=5, instance=10)
    world.answers = False
    channel = world.master.channel_of("ana", Role.USER)
    attached = [world.by(channel, EXEC) for _ in range(MANY)]
    ended = [asyncio.ensure_future(each.call.code()) for each in attached]
    await until(lambda: sum(code.done() for code in ended) == MANY - 5)
    assert {code.result() for code in ended if code.done()} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert len(world.wishes) == 5
    world.answers = True
    assert await works(world)
    for each in attached:
        each.call.cancel()
    await until(lambda: not world.master.sessions.attachments.open)


async def test_a_call_that_is_held_up_by_its_user_is_charged(
    world: AttachWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken rule ends the command, and the call waits for a user who does not read."""
    ends: list[End] = []

    class Kept(End):
        def __init__(self, call: grpc.aio.ServicerContext) -> None:
            super().__init__(call)
            ends.append(self)

    monkeypatch.setattr(service, "End", Kept)
    attachments = world.master.sessions.attachments
    attachments._limits = AttachLimits(user=2, instance=10)
    held = []
    for _ in range(2):
        attached = world.attach("yes")
        await attached.until_open()
        held.append(attached)
        await until_stuck(ends[-1])
        await attached.call.write(pb.Input(data=bytes(65_537)))
    await until(lambda: not world.attachments.has(world.key))
    assert isinstance(await refused(world.attach("true")), Busy)
    assert await works(world)
    for attached in held:
        attached.call.cancel()
    await until(lambda: not attachments._users)


async def until_stuck(end: End) -> None:
    """Wait until one write goes on and on."""
    writing, looks = None, 0
    while looks < 50:
        looks = looks + 1 if end._writing is writing else 0
        writing = end._writing
        await asyncio.sleep(0.01)
    assert writing is not None
    assert not writing.done()


async def claimed(world: AttachWorld) -> tuple[Attached, grpc.aio.StreamStreamCall]:
    """A user's call and the agent's that answers it."""
    world.answers = False
    before = len(world.wishes)
    attached = world.attach("true")
    await until(lambda: len(world.wishes) > before)
    call = WorkersStub(world.master.worker_channel(HERE)).Attach()
    await call.write(pb.Output(claim=world.wishes[-1].id))
    world.answers = True
    return attached, call


async def test_an_agent_that_floods_waits_for_its_user(world: AttachWorld) -> None:
    """Little of what it has sent waits in the master, however fast the line is."""
    attached, call = await claimed(world)
    sent = 0

    async def flood() -> None:
        nonlocal sent
        while True:
            await call.write(pb.Output(data=bytes(65_536)))
            sent += 65_536

    with capture_logs() as lines:
        flooding = asyncio.create_task(flood())
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.5)
        assert await works(world)
        attached.call.cancel()
        await asyncio.gather(flooding, return_exceptions=True)
        await until(lambda: not world.master.sessions.attachments.open)
    ends = [
        line for line in lines if (line["event"], line.get("user")) == ("attachment ends", "ana")
    ]
    (received,) = [line["received"] for line in ends]
    assert sent - received <= 512 * 1024


async def test_frames_after_the_last_one_reach_nobody(world: AttachWorld) -> None:
    attached, call = await claimed(world)
    await call.write(pb.Output(data=b"all"))
    await call.write(pb.Output(exit=pb.Exit(code=3)))
    with contextlib.suppress(asyncio.InvalidStateError, grpc.aio.AioRpcError):
        while True:
            await call.write(pb.Output(data=bytes(65_536)))
    assert (await attached.end()).code == 3
    assert attached.output == b"all"
    assert await works(world)


@pytest.mark.parametrize("code", [256, -1, 2**31 - 1])
async def test_a_code_that_a_shell_would_cut_is_no_success(world: AttachWorld, code: int) -> None:
    attached, call = await claimed(world)
    await call.write(pb.Output(exit=pb.Exit(code=code)))
    assert isinstance(await refused(attached), BadRequest)


async def test_frames_of_megabytes_end_an_attachment_alone(world: AttachWorld) -> None:
    attached, call = await claimed(world)
    other, others_call = await claimed(world)
    await call.write(pb.Output(data=bytes(15_000_000)))
    assert isinstance(await refused(attached), BadRequest)
    await others_call.write(pb.Output(exit=pb.Exit(code=4)))
    assert (await other.end()).code == 4


async def test_an_agent_has_no_more_calls_than_are_asked_for(
    world: AttachWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tickets, "_LATE", 3)
    await world.master.launched("i-2")
    channel = world.master.worker_channel(InstanceId("i-2"))
    calls = [WorkersStub(channel).Attach() for _ in range(MANY)]
    for call in calls:
        assert not call.done()
    ended = [asyncio.ensure_future(call.code()) for call in calls]
    await until(lambda: sum(code.done() for code in ended) == MANY - 3)
    assert {code.result() for code in ended if code.done()} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert await works(world)
    for call in calls:
        call.cancel()


async def test_an_agent_opens_few_sessions_at_a_time(world: AttachWorld) -> None:
    await world.master.launched("i-2")
    channel = world.master.worker_channel(InstanceId("i-2"))
    calls = [WorkersStub(channel).Session() for _ in range(MANY)]
    ended = [asyncio.ensure_future(call.code()) for call in calls]
    await until(lambda: sum(code.done() for code in ended) == MANY - 8)
    assert {code.result() for code in ended if code.done()} == {grpc.StatusCode.RESOURCE_EXHAUSTED}
    for call in calls:
        call.cancel()
    await asyncio.gather(*ended)
    agent = await world.master.welcomed(InstanceId("i-2"))
    await agent.say(heartbeat=wpb.Heartbeat())
    assert await works(world)
