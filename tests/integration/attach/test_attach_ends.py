"""How commands in tasks end, and what hostile ends of the wire achieve."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
from structlog.testing import capture_logs

from eva_master.adapters.rpc.attach import attachments as tickets
from eva_master.adapters.rpc.attach.attachments import AttachLimits
from eva_wire._proto import attach_pb2 as pb
from eva_wire._proto.worker_pb2_grpc import WorkersStub
from eva_wire.rpc.errors import BadRequest
from eva_wire.values.errors import (
    AttachRefused,
    Busy,
    InvalidRequest,
    NotAuthenticated,
    NotRunning,
    Unreachable,
)
from eva_wire.values.ids import run_id
from eva_wire.values.states import JobState, RunState
from eva_wire.values.users import Role
from eva_worker.link import wire
from tests.fakes.patience import DEADLINE_S
from tests.fakes.rpc.attaching import HERE, Attached, AttachWorld, attach_world, placed
from tests.fakes.rpc.server import refusal

LOOP = "while :; do sleep 0.1; done"


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[AttachWorld]:
    async with attach_world(tmp_path) as running:
        yield running


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            await asyncio.sleep(0.01)


async def shell(world: AttachWorld, trap: str = ":", **options: object) -> Attached:
    """A command that runs until it is ended, and has set its traps."""
    attached = world.attach("sh", "-c", f"{trap}; echo ready; {LOOP}", **options)
    await attached.heard(b"ready")
    return attached


async def refused(attached: Attached) -> Exception:
    """Why a call was refused."""
    return (await refusal(attached.end()))[1]


async def hung_up(world: AttachWorld, name: str) -> None:
    """Wait until a command has had its SIGHUP and is gone."""
    await until((world.home / name).exists)
    await until(lambda: not world.attachments.has(world.key))


async def test_a_command_ends_with_its_user(world: AttachWorld) -> None:
    attached = await shell(world, "trap 'touch hung-up; exit 1' HUP")
    attached.call.cancel()
    await hung_up(world, "hung-up")
    await until(lambda: not world.master.sessions.attachments.open)


async def test_a_command_ends_within_a_second_of_its_token(world: AttachWorld) -> None:
    token, secret = world.master.tokens.create("ana", Role.USER)
    script = f"trap 'touch hung-up; exit' HUP; echo ready; {LOOP}"
    kind = pb.Kind(exec=pb.Exec(command=["sh", "-c", script]))
    attached = world.by(world.master.channel_with(secret), kind)
    await attached.heard(b"ready")
    world.master.tokens.revoke(token.id)
    assert isinstance(await refused(attached), NotAuthenticated)
    await hung_up(world, "hung-up")


async def test_a_dead_agent_ends_it_with_a_message(world: AttachWorld) -> None:
    attached = await shell(world)
    world.attachments._open[world.wishes[0].id].work.cancel()
    error = await refused(attached)
    assert isinstance(error, Unreachable)
    assert "the worker on i-1 went away, and what ran in train-1/0 with it" in str(error)


async def test_a_master_that_stops_ends_it_and_the_command(world: AttachWorld) -> None:
    attached = await shell(world, "trap 'touch hung-up; exit' HUP")
    assert world.master.server is not None
    await world.master.server.stop(0)
    with pytest.raises(grpc.aio.AioRpcError):
        await attached.end()
    await hung_up(world, "hung-up")


async def test_commands_are_over_before_their_task_is_asked_to_stop(tmp_path: Path) -> None:
    task = f"trap 'ls > listed; mv listed stopped; exit' TERM; touch ready; {LOOP}"
    async with attach_world(tmp_path, task) as world:
        await until((world.home / "ready").exists)
        attached = await shell(world, "trap 'sleep 0.3; touch hung-up; exit 9' HUP")
        runtime, asked = world.runtime, []

        async def stop(grace_s: float) -> None:
            asked.append(grace_s)
            await runtime.stop(world.key, grace_s)

        began = time.monotonic()
        await world.attachments.stop(world.key, DEADLINE_S, stop)
        assert time.monotonic() - began < 0.3, "the session waits for it"
        ended = await attached.end()
        assert ended == pb.Exit(code=9, reason="the task is being stopped")
        await until((world.home / "stopped").exists)
        assert "hung-up" in (world.home / "stopped").read_text()
        assert DEADLINE_S - 2 <= asked[0] < DEADLINE_S - 0.3


async def test_a_command_that_ignores_its_end_takes_no_more_than_half_of_the_grace(
    world: AttachWorld,
) -> None:
    await shell(world, "trap '' HUP")
    asked: list[float] = []

    async def stop(grace_s: float) -> None:
        asked.append(grace_s)

    await world.attachments.stop(world.key, 1.0, stop)
    await until(lambda: asked)
    assert 0 < asked[0] <= 0.5


async def test_a_task_is_stopped_in_time_though_the_master_is_not_reached(
    world: AttachWorld,
) -> None:
    """Something answers at the master's address, and not what it should."""
    world.answers = False
    world.attach("touch", "begun")
    await until(lambda: world.wishes)
    silent = await asyncio.start_server(lambda _, __: None, "127.0.0.1", 0)
    address = f"127.0.0.1:{silent.sockets[0].getsockname()[1]}"
    world.attachments.begin(
        world.key, wire.wanted(world.wishes[0]), lambda: grpc.aio.insecure_channel(address), ""
    )
    asked: list[float] = []

    async def stop(grace_s: float) -> None:
        asked.append(grace_s)

    await world.attachments.stop(world.key, 1.0, stop)
    await until(lambda: asked)
    assert 0 < asked[0] <= 0.6
    world.attachments._open[world.wishes[0].id].work.cancel()
    await until(lambda: not world.attachments.has(world.key))
    silent.close()


@pytest.mark.parametrize("left", [False, True], ids=["its task stops", "its user has gone"])
async def test_a_command_that_comes_too_late_does_not_begin(
    world: AttachWorld, *, left: bool
) -> None:
    world.answers = False
    attached = world.attach("touch", "begun")
    await until(lambda: world.wishes)
    name = world.wishes[0].id
    world.begin(world.wishes[0])
    if left:
        world.attachments.leave(name)
    else:
        await world.attachments.end(world.key, 0, "the task is being stopped")
    error = await refused(attached)
    # The refusal and the end of the call may overtake one another.
    assert isinstance(error, (AttachRefused, Unreachable) if left else AttachRefused)
    await until(lambda: not world.attachments.has(world.key))
    assert not (world.home / "begun").exists()


async def test_a_task_that_stops_takes_no_more_commands(world: AttachWorld) -> None:
    world.answers = False
    attached = world.attach("true")
    await until(lambda: world.wishes)
    world.begin(world.wishes[0], "the task is being stopped")
    error = await refused(attached)
    assert isinstance(error, AttachRefused)
    assert str(error) == "the task is being stopped"


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (RunState.WAITING, "waits and does not run yet: no room"),
        (RunState.STARTING, "is starting"),
        (RunState.STOPPING, "is being stopped"),
        (RunState.SUCCEEDED, "has ended (succeeded)"),
    ],
)
async def test_a_task_that_does_not_run_is_not_entered(
    world: AttachWorld, state: RunState, words: str
) -> None:
    name = run_id(world.job, 0)

    def change(state_: object) -> None:
        run = placed(state_.runs[name], state)
        state_.put_run(replace(run, waiting_for="no room"))

    await world.master.loop.change(change)
    error = await refused(world.attach("true"))
    assert isinstance(error, NotRunning)
    assert words in str(error)
    assert world.wishes == []


async def test_a_job_that_has_ended_is_not_entered(world: AttachWorld) -> None:
    def end(state: object) -> None:
        job = state.jobs[world.job]
        history = (*job.history, (JobState.CANCELLED.value, 3000))
        state.put_job(replace(job, history=history))

    await world.master.loop.change(end)
    error = await refused(world.attach("true"))
    assert isinstance(error, NotRunning)
    assert "job train-1 has ended (cancelled)" in str(error)


async def test_one_of_several_tasks_has_to_be_named(tmp_path: Path) -> None:
    async with attach_world(tmp_path, tasks=3) as world:
        error = await refused(world.attach("true"))
        assert isinstance(error, InvalidRequest)
        assert str(error) == "job train-1 has 3 tasks: name one of them"
        assert error.hint == "train-1/0, train-1/1, train-1/2"
        assert (await world.attach("true", task=0).end()).code == 0


async def test_an_agent_that_does_not_answer_is_named(
    world: AttachWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.answers = False
    monkeypatch.setattr(tickets, "_CLAIM_S", 0.2)
    error = await refused(world.attach("true"))
    assert isinstance(error, Unreachable)
    assert "the worker on i-1 has not answered within 0.2 s" in str(error)


async def claim(world: AttachWorld, name: str, instance: str = HERE) -> grpc.StatusCode:
    """Status of a call of an agent that names an id, OK once it is let in."""
    channel = world.master.worker_channel(instance)
    call = WorkersStub(channel).Attach()
    await call.write(pb.Output(claim=name))
    ended = asyncio.ensure_future(call.code())
    await asyncio.wait({ended}, timeout=0.5)
    return ended.result() if ended.done() else grpc.StatusCode.OK


async def test_an_id_is_good_once_and_for_one_instance(world: AttachWorld) -> None:
    world.answers = False
    await world.master.launched("i-2")
    attached = world.attach("true")
    await until(lambda: world.wishes)
    name = world.wishes[0].id
    denied = grpc.StatusCode.PERMISSION_DENIED
    assert await claim(world, "x" * len(name)) is denied
    assert await claim(world, name, "i-2") is denied
    assert await claim(world, name) is grpc.StatusCode.OK
    assert await claim(world, name) is denied
    attached.call.cancel()
    await until(lambda: not world.master.sessions.attachments.open)
    assert await claim(world, name) is denied


@pytest.mark.parametrize(
    "frame",
    [
        pb.Output(data=b"x" * 65_537),
        pb.Output(claim="again"),
        pb.Output(),
    ],
)
async def test_an_agent_that_breaks_a_rule_ends_its_attachment_alone(
    world: AttachWorld, frame: pb.Output
) -> None:
    world.answers = False
    attached = world.attach("true")
    await until(lambda: world.wishes)
    call = WorkersStub(world.master.worker_channel(HERE)).Attach()
    await call.write(pb.Output(claim=world.wishes[0].id))
    await call.write(frame)
    assert isinstance(await refused(attached), BadRequest)
    world.answers = True
    assert (await world.attach("true").end()).code == 0


@pytest.mark.parametrize(
    "kind",
    [
        pb.Kind(),
        pb.Kind(forward=pb.Forward(port=70_000)),
        pb.Kind(forward=pb.Forward()),
        pb.Kind(exec=pb.Exec(command=["a\0b"])),
        pb.Kind(exec=pb.Exec(command=["x"] * 1_001)),
        pb.Kind(exec=pb.Exec(command=["x" * 100_001])),
        pb.Kind(exec=pb.Exec(command=["é" * 50_001])),
        pb.Kind(exec=pb.Exec(terminal=pb.Size(rows=10_000, columns=80))),
        pb.Kind(exec=pb.Exec(terminal=pb.Size())),
        pb.Kind(exec=pb.Exec(term="xterm\nEVIL=1")),
    ],
)
async def test_what_a_user_asks_is_bounded(world: AttachWorld, kind: pb.Kind) -> None:
    assert isinstance(await refused(world.open(kind)), BadRequest)
    assert world.wishes == []


@pytest.mark.parametrize(
    "frame",
    [
        pb.Input(data=b"x" * 65_537),
        pb.Input(resize=pb.Size(rows=4_000_000_000, columns=1)),
        pb.Input(open=pb.Open(job="other")),
    ],
)
async def test_a_user_that_breaks_a_rule_is_cut_off(world: AttachWorld, frame: pb.Input) -> None:
    attached = await shell(world, "trap 'touch hung-up; exit' HUP")
    await attached.call.write(frame)
    assert isinstance(await refused(attached), BadRequest)
    await hung_up(world, "hung-up")


async def test_a_command_that_does_not_read_ends_with_its_user(world: AttachWorld) -> None:
    """Its input waits in both connections, and so would the end of the call."""
    attached = await shell(world)
    sent = 0

    async def send() -> None:
        nonlocal sent
        while True:
            await attached.say(data=bytes(65_536))
            sent += 1

    sending = asyncio.create_task(send())
    before = -1
    while sent != before:
        before = sent
        await asyncio.sleep(0.5)
    attached.call.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    await until(lambda: not world.attachments.has(world.key))
    assert sent < 1_000


async def test_output_waits_for_a_user_who_does_not_read(world: AttachWorld) -> None:
    """No end piles anything up: the program itself waits."""
    attached = world.attach("sh", "-c", "yes | head -c 200000000 | tee written; touch done")
    await attached.until_open()
    written = world.home / "written"
    await until(written.exists)
    sizes = [-1, 0]
    while sizes[-1] != sizes[-2]:
        await asyncio.sleep(0.5)
        sizes.append(written.stat().st_size)
    assert sizes[-1] < 64_000_000
    assert not (world.home / "done").exists()
    attached.call.cancel()
    await until(lambda: not world.attachments.has(world.key))


async def test_attachments_are_limited(tmp_path: Path) -> None:
    async with attach_world(tmp_path) as world:
        world.master.sessions.attachments._limits = AttachLimits(user=1, instance=2, forward=1)
        await shell(world)
        error = await refused(world.attach("true"))
        assert isinstance(error, Busy)
        assert "limits.attachments`" in error.hint
        operator = {"owner": "oscar", "role": Role.OPERATOR}
        second = await shell(world, **operator)
        error = await refused(world.attach("true", owner="olga", role=Role.OPERATOR))
        assert isinstance(error, Busy)
        assert "limits.attachments_per_instance" in error.hint
        second.call.cancel()
        attachments = world.master.sessions.attachments
        await until(lambda: attachments.open == 1)
        assert (await world.attach("true", **operator).end()).code == 0


async def test_each_use_is_in_the_log(world: AttachWorld) -> None:
    with capture_logs() as lines:
        await world.attach("sh", "-c", "echo secret-argument; exit 3").end()
        attachments = world.master.sessions.attachments
        await until(lambda: not attachments.open)
        await until(lambda: any(line["event"] == "attachment ends" for line in lines))
    (opens,) = [line for line in lines if line["event"] == "attachment opens"]
    (ends,) = [line for line in lines if line["event"] == "attachment ends"]
    assert (opens["user"], opens["owner"], opens["run"]) == ("ana", "ana", "train-1/0")
    assert (opens["instance"], opens["what"], opens["command"]) == (HERE, "exec", "sh")
    assert (ends["code"], ends["received"], ends["how"]) == (3, 16, "ended")
    assert not [line for line in lines if "secret-argument" in str(line)]


async def test_heartbeats_say_that_a_user_was_there(world: AttachWorld) -> None:
    assert not world.attachments.disturbed()
    attached = await shell(world)
    assert world.attachments.disturbed()
    assert world.attachments.disturbed()
    attached.call.cancel()
    await until(lambda: not world.attachments.has(world.key))
    assert world.attachments.disturbed(), "since the last heartbeat"
    assert not world.attachments.disturbed()
