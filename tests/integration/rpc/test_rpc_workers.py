"""Workers' sessions over a real connection, with agents played by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from eva_master.adapters.rpc.workers import messages, sessions
from eva_master.adapters.rpc.workers.message_rate import MessageRate
from eva_master.adapters.rpc.workers.sessions import Welcome, WorkerSessions, _Session
from eva_master.control.state.store import State
from eva_master.model.actions import (
    FetchFiles,
    ForgetTask,
    StartTask,
    StopTask,
    SyncWorker,
    TaskOrder,
    TellMerge,
)
from eva_master.model.events import (
    Phase,
    ProgressSampled,
    RunReport,
    WorkerFetched,
    WorkerLost,
    WorkerRegistered,
    WorkerReported,
)
from eva_master.model.forks.merging import MergeRound
from eva_master.model.job import Program
from eva_master.model.progress import Progress
from eva_master.model.resources import Resources
from eva_wire._proto import worker_pb2 as pb
from eva_wire._proto.worker_pb2_grpc import WorkersStub
from eva_wire.values.errors import Unreachable
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId
from eva_wire.values.states import InstanceState
from tests.fakes.patience import DEADLINE_S
from tests.fakes.rpc.server import Agent, RpcMaster, rpc_master

WORKERS = pb.DESCRIPTOR.services_by_name["Workers"]
I1 = InstanceId("i-1")
RUN = RunId("resnet-1/0")


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[RpcMaster]:
    async with rpc_master(tmp_path) as running:
        yield running


def order(attempt: int = 1) -> TaskOrder:
    program = Program("python train.py", (("LR", "0.1"),), "ab" * 32, (("imagenet", "s3://b/i"),))
    demand = Resources(1, 2000, 4096)
    return TaskOrder(RUN, attempt, JobId("resnet-1"), 0, "resnet", program, demand, 60_000, 7)


async def test_a_registered_agent_is_welcomed_and_reported(master: RpcMaster) -> None:
    exited = pb.TaskReport(run_id=RUN, attempt=3, phase=pb.PHASE_EXITED, exit_code=-9)
    agent = await master.agent(tasks=(exited,))
    welcome = await agent.hear()
    assert welcome.welcome.cluster == "test"
    assert (welcome.welcome.heartbeat_ms, welcome.welcome.upload_ms) == (1000, 5000)
    registered = await master.loop.event()
    assert isinstance(registered, WorkerRegistered)
    assert registered.instance == "i-1"
    assert registered.capacity == Resources(0, 2000, 4096)
    assert registered.reports == (RunReport(RUN, 3, Phase.EXITED, exit_code=137),)
    assert master.sessions.connected == 1


async def test_it_is_known_where_others_reach_a_worker_and_what_it_has_measured(
    master: RpcMaster,
) -> None:
    await master.launched()
    agent = Agent(WorkersStub(master.worker_channel()).Session())
    register = pb.Register(instance_id="i-1", address="10.0.0.7", measured_mib=3_478)
    register.confinement = "landlock\x1b[2J " + "x" * 1_000
    await agent.say(register=register)
    await agent.hear()
    registered = await master.loop.event()
    assert isinstance(registered, WorkerRegistered)
    assert registered.address == "10.0.0.7"
    assert registered.measured_mib == 3_478
    assert registered.confinement == ("landlock?[2J " + "x" * 1_000)[:200]


async def test_an_agent_cannot_pose_as_another_instance(master: RpcMaster) -> None:
    agent = await master.agent("i-1", channel=master.worker_channel("i-2"))
    assert await agent.ended() is grpc.StatusCode.PERMISSION_DENIED
    assert master.sessions.connected == 0
    assert master.loop.quiet


async def test_a_session_begins_with_register_and_has_only_one(master: RpcMaster) -> None:
    await master.launched()
    agent = Agent(WorkersStub(master.worker_channel()).Session())
    await agent.say(heartbeat=pb.Heartbeat())
    assert await agent.ended() is grpc.StatusCode.INVALID_ARGUMENT
    agent = await master.welcomed()
    await agent.say(register=pb.Register(instance_id="i-1"))
    assert await agent.ended() is grpc.StatusCode.INVALID_ARGUMENT
    assert isinstance(await master.loop.event(), WorkerLost)


async def test_a_worker_that_connects_again_and_again_is_not_read_faster_for_it(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[int] = []

    class Counting(MessageRate):
        def pause_s(self, parts: int) -> float:
            counted.append(parts)
            return super().pause_s(parts)

    made: list[MessageRate] = []

    def pace() -> MessageRate:
        made.append(Counting())
        return made[-1]

    monkeypatch.setattr(sessions, "MessageRate", pace)
    reports = tuple(
        pb.TaskReport(run_id=RUN, attempt=it, phase=pb.PHASE_EXITED) for it in range(1, 8)
    )
    for _ in range(3):
        agent = await master.agent(tasks=reports)
        await agent.hear()
    assert len(made) == 1
    assert sum(counted) >= 3 * (len(reports) + 100)


async def test_what_a_worker_says_fills_no_log(master: RpcMaster) -> None:
    agent = await master.welcomed()
    with capture_logs() as lines:
        for _ in range(200):
            await agent.say(interruption=pb.Interruption(reason="soon"))
            await agent.say(fetched=pb.Fetched(run_id="x" * 5_000))
        await agent.say(fetched=pb.Fetched(run_id=RUN))
        while not isinstance(event := await master.loop.event(), WorkerFetched):
            pass
    assert event.run == RUN
    assert 50 <= len(lines) < 150


async def test_what_a_worker_says_becomes_events(master: RpcMaster) -> None:
    agent = await master.agent()
    await agent.hear()
    session = (await master.loop.event()).session
    progress = pb.Sample(run_id=RUN, attempt=1, steps=5, total_steps=9, metrics={"loss": 0.5})
    await agent.say(heartbeat=pb.Heartbeat())
    await agent.say(heartbeat=pb.Heartbeat(samples=[progress]))
    running = pb.TaskReport(run_id=RUN, attempt=1, phase=pb.PHASE_RUNNING, progress=progress)
    never = pb.TaskReport(
        run_id=RUN, attempt=2, phase=pb.PHASE_EXITED, never_started=True, message="no image"
    )
    await agent.say(reports=pb.Reports(tasks=[running, never]))
    await agent.say(fetched=pb.Fetched(run_id=RUN, attempt=2, error="no such bucket"))
    await agent.say(fetched=pb.Fetched(run_id=RUN, attempt=2))
    far = Progress(5, 9, (("loss", 0.5),))
    assert await master.loop.event() == ProgressSampled(I1, session, ((RUN, 1, far),))
    assert await master.loop.event() == WorkerReported(
        I1,
        session,
        (
            RunReport(RUN, 1, Phase.RUNNING, progress=far),
            RunReport(RUN, 2, Phase.EXITED, never_started=True, message="no image"),
        ),
    )
    assert await master.loop.event() == WorkerFetched(I1, session, RUN)
    # The empty heartbeat was counted and reached nobody.
    assert master.sessions.heartbeats == 2


async def test_a_report_without_a_phase_ends_the_session(master: RpcMaster) -> None:
    agent = await master.welcomed()
    await agent.say(reports=pb.Reports(tasks=[pb.TaskReport(run_id=RUN, attempt=1)]))
    assert await agent.ended() is grpc.StatusCode.INVALID_ARGUMENT


async def test_commands_arrive_in_order_and_repeated_ones_have_the_same_id(
    master: RpcMaster,
) -> None:
    agent = await master.welcomed()
    actions = [
        FetchFiles(I1, order()),
        StartTask(I1, order()),
        StopTask(I1, RUN, 1, 60_000),
        StopTask(I1, RUN, 1, 0),
        ForgetTask(I1, RUN, 1),
        SyncWorker(I1),
    ]

    async def exchange() -> list[pb.MasterMessage]:
        for action in actions:
            master.sessions.execute(action)
        return [await agent.hear() for _ in actions]

    first, second = await exchange(), await exchange()
    bodies = ["fetch", "start", "stop", "stop", "forget", "sync"]
    assert [message.WhichOneof("body") for message in first] == bodies
    ids = [message.command_id for message in first]
    assert len(set(ids)) == len(ids), "different commands have different ids"
    again = [message.command_id for message in second]
    assert again[:-1] == ids[:-1]
    # Each question for a report wants its own answer.
    assert again[-1] != ids[-1]
    sent = first[1].start.order
    assert (sent.run, dict(sent.env), sent.workdir) == ("python train.py", {"LR": "0.1"}, "ab" * 32)
    assert (sent.grace_ms, sent.resume, sent.demand.gpus) == (60_000, 7, 1)
    assert dict(sent.inputs) == {"imagenet": "s3://b/i"}


async def test_a_command_to_a_worker_without_a_session_is_dropped(master: RpcMaster) -> None:
    master.sessions.execute(SyncWorker(I1))
    agent = await master.welcomed()
    await agent.call.done_writing()
    assert isinstance(await master.loop.event(), WorkerLost)
    master.sessions.execute(SyncWorker(I1))
    assert await agent.call.read() is grpc.aio.EOF


@pytest.mark.parametrize("goodbye", [True, False])
async def test_the_end_of_a_stream_says_whether_the_worker_took_leave(
    master: RpcMaster, goodbye: bool
) -> None:
    agent = await master.welcomed()
    if goodbye:
        await agent.say(goodbye=pb.Goodbye(reason="interrupted"))
        assert await agent.ended() is grpc.StatusCode.OK
    else:
        agent.call.cancel()
    lost = await master.loop.event()
    assert isinstance(lost, WorkerLost)
    assert (lost.goodbye, lost.reason) == (goodbye, "interrupted" if goodbye else "")
    assert master.sessions.connected == 0


async def test_a_newer_session_replaces_the_older_one(master: RpcMaster) -> None:
    older = await master.agent()
    await older.hear()
    first = await master.loop.event()
    newer = await master.agent()
    await newer.hear()
    second = await master.loop.event()
    assert second.session > first.session
    assert await older.ended() is grpc.StatusCode.ABORTED
    master.sessions.execute(SyncWorker(I1))
    assert (await newer.hear()).HasField("sync")
    newer.call.cancel()
    # The older session's end was nobody's loss.
    assert await master.loop.event() == WorkerLost(I1, second.session, goodbye=False)
    assert master.loop.quiet


async def test_a_second_agent_is_refused_while_the_first_is_heard_of(master: RpcMaster) -> None:
    first = await master.agent(process="one")
    await first.hear()
    registered = await master.loop.event()
    copy = await master.agent(process="two")
    assert await copy.ended() is grpc.StatusCode.ALREADY_EXISTS
    assert "another agent is connected as 'i-1'" in await copy.call.details()
    hints = dict(await copy.call.trailing_metadata())["eva-hint-bin"].decode()
    assert "a state directory belongs to one machine" in hints
    assert master.loop.quiet
    master.sessions.execute(SyncWorker(I1))
    assert (await first.hear()).HasField("sync")
    # The same process, whose connection broke without a word, is let in at once.
    again = await master.agent(process="one")
    assert (await again.hear()).HasField("welcome")
    second = await master.loop.event()
    assert second.session > registered.session
    # And one that was started anew, once the end of the other is noticed.
    again.call.cancel()
    assert await master.loop.event() == WorkerLost(I1, second.session, goodbye=False)
    anew = await master.agent(process="two")
    assert (await anew.hear()).HasField("welcome")


async def test_an_agent_of_whom_no_heartbeat_comes_gives_way_to_another(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await master.agent(process="one")
    await first.hear()
    monkeypatch.setattr(_Session, "silent_ms", lambda session, now: 5_000)
    second = await master.agent(process="two")
    assert (await second.hear()).HasField("welcome")
    assert await first.ended() is grpc.StatusCode.ABORTED


def test_silence_counts_from_the_last_heartbeat() -> None:
    clock = _StoppedClock()

    async def scenario() -> None:
        session = _Session(I1, clock.now(), None)
        clock.at += 3_000
        assert session.silent_ms(clock.now()) == 3_000
        session.beat(clock.now())
        clock.at += 1_000
        assert session.silent_ms(clock.now()) == 1_000

    asyncio.run(scenario())


async def test_a_newer_order_of_a_merge_takes_the_place_of_one_that_waits() -> None:
    written: list[pb.MasterMessage] = []
    reads = asyncio.Event()

    async def write(message: pb.MasterMessage) -> None:
        await reads.wait()
        written.append(message)

    session = _Session(I1, 1, SimpleNamespace(write=write))
    for quota, give in ((0, False), (50, False), (50, True)):
        told = TellMerge(I1, RUN, 1, MergeRound(4, 0, quota, 2, give=give))
        session.send(messages.command(told))
    reads.set()
    await session.settle()
    assert [(it.merge.quota, it.merge.give) for it in written] == [(50, True)]
    assert session._outgoing_bytes == 0


async def test_a_session_ends_with_the_certificate_it_was_opened_with(master: RpcMaster) -> None:
    agent = await master.welcomed(channel=master.worker_channel(life_ms=2_000))
    assert await agent.ended() is grpc.StatusCode.PERMISSION_DENIED
    assert "has expired" in await agent.call.details()
    lost = await master.loop.event()
    assert isinstance(lost, WorkerLost)
    assert not lost.goodbye


def gone(state: State, instance: InstanceId = I1) -> None:
    """Have an instance end, in the control loop's thread."""
    state.put_instance(state.instances[instance].to(InstanceState.GONE, Millis(2_000)))


async def test_the_session_of_an_instance_that_is_gone_is_cut(master: RpcMaster) -> None:
    agent, other = await master.welcomed(), await master.welcomed("i-2")
    await master.loop.change(gone)
    assert await agent.ended() is grpc.StatusCode.PERMISSION_DENIED
    assert "there is no instance 'i-1', or no longer" in await agent.call.details()
    lost = await master.loop.event()
    assert (type(lost), lost.instance) == (WorkerLost, I1)
    await other.say(fetched=pb.Fetched(run_id=RUN, attempt=1))
    assert isinstance(await master.loop.event(), WorkerFetched)


@pytest.mark.parametrize("method", [one.name for one in WORKERS.methods])
@pytest.mark.parametrize("instance", [I1, "i-never"])
async def test_a_certificate_of_no_instance_is_refused_by_every_method(
    master: RpcMaster, method: str, instance: str
) -> None:
    channel = master.worker_channel(instance)
    await master.welcomed("i-1")
    await master.loop.change(gone)
    assert isinstance(await master.loop.event(), WorkerLost)
    called = getattr(WorkersStub(channel), method)
    # A stream is refused before it says a word.
    renews = method == "Renew"
    call = called(pb.RenewRequest(signing_request=b"none")) if renews else called()
    async with asyncio.timeout(DEADLINE_S):
        assert await call.code() is grpc.StatusCode.PERMISSION_DENIED
    assert "or no longer" in await call.details()
    assert master.loop.quiet
    assert master.sessions.connected == 0


async def test_an_instance_that_goes_as_its_agent_registers_is_refused(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates, found = master.sessions._certificates, []

    def is_live(instance: InstanceId) -> bool:
        found.append(instance)
        return len(found) == 1  # As it is admitted, but not any more when it is entered.

    monkeypatch.setattr(certificates, "is_live", is_live)
    agent = await master.agent()
    assert await agent.ended() is grpc.StatusCode.PERMISSION_DENIED
    assert master.sessions.connected == 0


class _NoCertificates:
    def on_gone(self, gone: object) -> None:
        pass


class _StoppedClock:
    at = 1_000

    def now(self) -> int:
        return self.at


def test_sessions_grow_though_the_clock_stands_still() -> None:
    sessions = WorkerSessions(None, _StoppedClock(), _NoCertificates(), None)
    assert [sessions._number() for _ in range(3)] == [1_000, 1_001, 1_002]


async def test_the_first_beat_after_a_silence_says_so() -> None:
    clock, events = _StoppedClock(), asyncio.Queue[Any]()
    inbox = SimpleNamespace(post=events.put_nowait)
    welcome = Welcome("test", "file:///objects", heartbeat_ms=2_000, upload_ms=1_000)
    sessions = WorkerSessions(inbox, clock, _NoCertificates(), welcome)
    session = _Session(I1, 1, None)
    for pause_ms in (0, 2_000, 5_999, 6_000, 2_000):
        clock.at += pause_ms
        sessions._hear(session, pb.WorkerMessage(heartbeat=pb.Heartbeat()))
    assert events.get_nowait() == ProgressSampled(I1, 1, (), disturbed=True)
    assert events.empty()


async def test_a_log_is_relayed_from_the_offset_to_its_end(master: RpcMaster) -> None:
    agent = await master.welcomed()
    pieces = master.sessions.follow_log(I1, RUN, 3, once=True)
    reading = asyncio.ensure_future(_all(pieces))
    follow = (await agent.hear()).follow
    assert (follow.run_id, follow.offset, follow.once) == (RUN, 3, True)
    # The agent may send more than was asked for.
    await agent.say(log=pb.LogChunk(stream_id=follow.stream_id, data=b"abcdef", offset=0))
    await agent.say(log=pb.LogChunk(stream_id=follow.stream_id, data=b"efgh", offset=4, end=True))
    assert await reading == b"defgh"


async def test_a_reader_that_goes_has_the_worker_stop(master: RpcMaster) -> None:
    agent = await master.welcomed()
    pieces = master.sessions.follow_log(I1, RUN, 0, once=False)
    first = asyncio.ensure_future(anext(pieces))
    stream = (await agent.hear()).follow.stream_id
    await agent.say(log=pb.LogChunk(stream_id=stream, data=b"abc", offset=0))
    assert (await first).data == b"abc"
    await pieces.aclose()
    assert (await agent.hear()).unfollow.stream_id == stream


async def test_a_slow_reader_holds_bounded_memory_and_misses_nothing(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eva_master.adapters.rpc.workers.log_relay._WAITING_BYTES", 100)
    agent = await master.welcomed()
    pieces = master.sessions.follow_log(I1, RUN, 0, once=False)
    first = asyncio.ensure_future(anext(pieces))
    stream = (await agent.hear()).follow.stream_id
    for index in range(10):
        chunk = pb.LogChunk(stream_id=stream, data=b"%d" % index * 60, offset=index * 60)
        await agent.say(log=chunk)
    # Nobody reads more than the first piece, so the relay gives up.
    assert (await first).data == b"0" * 60
    assert (await agent.hear()).unfollow.stream_id == stream
    rest = asyncio.ensure_future(_all(pieces))
    again = (await agent.hear()).follow
    assert again.stream_id != stream
    assert again.offset < 300
    whole = b"".join(b"%d" % index * 60 for index in range(10))[again.offset :]
    await agent.say(
        log=pb.LogChunk(stream_id=again.stream_id, data=whole, offset=again.offset, end=True)
    )
    assert b"0" * 60 + await rest == b"".join(b"%d" % index * 60 for index in range(10))


async def test_a_log_ends_with_its_session(master: RpcMaster) -> None:
    agent = await master.welcomed()
    reading = asyncio.ensure_future(_all(master.sessions.follow_log(I1, RUN, 0, once=False)))
    await agent.hear()
    agent.call.cancel()
    with pytest.raises(Unreachable):
        await reading
    with pytest.raises(Unreachable):
        await _all(master.sessions.follow_log(I1, RUN, 0, once=False))


async def _all(pieces: AsyncIterator[object]) -> bytes:
    return b"".join([piece.data async for piece in pieces])


class Cable:
    """A TCP relay that can go silent without closing anything, as a network that is cut does."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._silent = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        # A writer closes its connection when nobody holds it any more.
        self._writers: list[asyncio.StreamWriter] = []
        self.port = 0

    async def __aenter__(self) -> Cable:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        self._silent.set()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._writers += [writer, other_writer]
        for source, sink in ((reader, other_writer), (other_reader, writer)):
            task = asyncio.create_task(self._carry(source, sink))
            self._tasks.add(task)

    async def _carry(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        try:
            while data := await source.read(65536):
                if not self._silent.is_set():
                    sink.write(data)
        finally:
            if not self._silent.is_set():
                sink.close()


async def test_both_ends_notice_a_peer_that_went_silent(master: RpcMaster) -> None:
    async with Cable(master.ports.workers) as cable:
        channel = master.worker_channel(port=cable.port)
        try:
            agent = await master.welcomed(channel=channel)
            cable.cut()
            # Nothing but keep-alive can end these: both sockets stay open.
            async with asyncio.timeout(15):
                assert isinstance(await master.loop.event(), WorkerLost)
                assert await agent.ended() is grpc.StatusCode.UNAVAILABLE
        finally:
            await channel.close()
