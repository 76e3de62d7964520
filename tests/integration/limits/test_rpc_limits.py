"""What callers cost a master before it knows what they want, over real connections."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from structlog.testing import capture_logs

from eva_client.rpc.master import Client
from eva_master.adapters.rpc.server import job_messages, parsing, ports, views
from eva_master.adapters.rpc.server.admission import strangers
from eva_master.adapters.rpc.server.admission.pacing import UserLimits
from eva_master.control.state.store import State
from eva_master.model.values import replace
from eva_wire._proto import api_pb2 as pb
from eva_wire._proto import worker_pb2 as wpb
from eva_wire._proto.api_pb2_grpc import ClusterStub, JobsStub
from eva_wire._proto.worker_pb2_grpc import EnrolmentStub
from eva_wire.rpc.channels import MAX_REQUEST_BYTES
from eva_wire.values.errors import Busy, NotAuthenticated
from eva_wire.values.ids import InstanceId, JobId, Millis, RunId
from eva_wire.values.states import JobState, RunState
from eva_wire.values.users import Role
from tests.fakes.rpc.server import (
    DEADLINE_S,
    JOB_YAML,
    RpcMaster,
    add_instance,
    add_job,
    refusal,
    rpc_master,
    spec,
)

I1 = InstanceId("i-1")
JOB, RUN = JobId("resnet-1"), RunId("resnet-1/0")
INVALID = grpc.StatusCode.INVALID_ARGUMENT
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
SUBMISSION = pb.SubmitRequest(command_id="c1", job_yaml=JOB_YAML.format(name="resnet"))


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[RpcMaster]:
    async with rpc_master(tmp_path) as running:
        yield running


async def admitted(stream: Callable[[], grpc.aio.UnaryStreamCall]) -> object:
    """The first answer of a stream, once the master has seen another one go."""
    while True:
        try:
            return await stream().read()
        except grpc.aio.AioRpcError as refused:
            assert refused.code() is EXHAUSTED  # noqa: PT017 - any other is a failure


# -- strangers -----------------------------------------------------------------------------------


async def test_the_request_of_a_caller_without_a_token_is_not_read(master: RpcMaster) -> None:
    # Were it read, it would be refused for its size.
    request = pb.SubmitRequest(job_yaml="x" * (2 * MAX_REQUEST_BYTES))
    status, error = await refusal(JobsStub(master.channel).Submit(request, timeout=DEADLINE_S))
    assert (status, type(error)) == (grpc.StatusCode.UNAUTHENTICATED, NotAuthenticated)


async def test_joining_takes_a_small_request_and_logs_little(master: RpcMaster) -> None:
    stub = EnrolmentStub(master.channel)
    with capture_logs() as lines:
        for name in ("i" * (strangers.MOST_BYTES + 1), "i" * 5_000, "x" * 900_000):
            request = wpb.JoinRequest(instance_id=name, token="t", signing_request=b"")
            status, _ = await refusal(stub.Join(request, timeout=DEADLINE_S))
            assert status is INVALID
    assert len(repr(lines)) < 1_000


async def test_refusals_in_a_row_are_counted_rather_than_logged(master: RpcMaster) -> None:
    stub = ClusterStub(master.channel)
    with capture_logs() as lines:
        for _ in range(150):
            status, _ = await refusal(stub.Describe(pb.DescribeRequest(), timeout=DEADLINE_S))
            assert status is grpc.StatusCode.UNAUTHENTICATED
    assert 50 <= len([line for line in lines if line["event"] == "refused"]) < 150


async def test_a_request_that_does_not_arrive_ends_its_call(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strangers, "_ARRIVES_WITHIN_S", 0.05)
    monkeypatch.setattr(strangers, "_REQUEST_WITHIN_S", 0.05)

    async def never() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    for channel, method in (
        (master.user, "/eva.api.v1.Cluster/Describe"),
        (master.channel, "/eva.worker.v1.Enrolment/Join"),
    ):
        status, error = await refusal(channel.stream_unary(method)(never(), timeout=DEADLINE_S))
        assert (status, type(error)) == (EXHAUSTED, Busy)


@pytest.mark.parametrize("port", ["users", "workers"])
async def test_connections_of_strangers_take_few_of_a_masters_files_and_not_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: str
) -> None:
    """Without files a master can neither write its journal nor hear its agents."""
    monkeypatch.setattr(ports, "_MOST_CONNECTIONS", 8)
    monkeypatch.setattr(ports, "_HANDSHAKE_MS", 1_000)
    async with rpc_master(tmp_path) as master, contextlib.AsyncExitStack() as opened:
        before = len(list(Path("/proc/self/fd").iterdir()))
        streams = []
        for _ in range(50):
            address = ("127.0.0.1", getattr(master.ports, port))
            reader, writer = await asyncio.open_connection(*address)
            opened.callback(writer.close)
            streams.append(reader)
        # Each has an end here, too.
        assert len(list(Path("/proc/self/fd").iterdir())) - before <= 50 + 8 + 1
        async with asyncio.timeout(DEADLINE_S):
            assert await asyncio.gather(*(one.read() for one in streams)) == [b""] * 50
        await JobsStub(master.user).List(pb.ListJobsRequest(), timeout=DEADLINE_S)


async def test_streams_of_strangers_are_limited(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master.strangers.streams, "_per_address", 2)
    stub = health_pb2_grpc.HealthStub(master.channel)
    watches = [stub.Watch(health_pb2.HealthCheckRequest()) for _ in range(2)]
    async with asyncio.timeout(DEADLINE_S):
        for watch in watches:
            await watch.read()
        third = stub.Watch(health_pb2.HealthCheckRequest())
        status, error = await refusal(third.read())
        assert (status, type(error)) == (EXHAUSTED, Busy)
        assert (await stub.Check(health_pb2.HealthCheckRequest())).status
        watches[0].cancel()
        assert await admitted(lambda: stub.Watch(health_pb2.HealthCheckRequest()))


# -- users ---------------------------------------------------------------------------------------


async def test_a_request_that_is_too_large_is_refused(master: RpcMaster) -> None:
    request = pb.SubmitRequest(job_yaml="x" * (2 * MAX_REQUEST_BYTES))
    status, _ = await refusal(master.jobs.Submit(request, timeout=DEADLINE_S))
    assert status is EXHAUSTED


@pytest.mark.parametrize(
    "request_",
    [
        pb.SubmitRequest(command_id="x" * 1_001, job_yaml="name: a"),
        pb.SubmitRequest(job_yaml="name: a", file_name="x" * 1_001),
        pb.SubmitRequest(job_yaml="name: a", envs={"x" * 1_001: "1"}),
        pb.GetJobRequest(job="x" * 100_000),
        pb.GetJobRequest(job="a\0b"),
        pb.WatchRequest(jobs=["a"] * 1_001),
        pb.ExplainRequest(subject="9" * 19),
        pb.ExplainRequest(subject="9" * 500),
        pb.ListJobsRequest(all=True, page_token="OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5"),
        pb.CostRequest(instances_page_token="aS05OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk="),
        pb.MissingBlobsRequest(digests=["a"] * 10_001),
    ],
    ids=lambda it: f"{type(it).__name__}-{it.ByteSize()}",
)
async def test_texts_lists_and_numbers_that_nobody_means_are_refused(
    master: RpcMaster, request_: object
) -> None:
    methods = {
        pb.SubmitRequest: master.jobs.Submit,
        pb.GetJobRequest: master.jobs.Get,
        pb.ListJobsRequest: master.jobs.List,
        pb.MissingBlobsRequest: master.jobs.MissingBlobs,
        pb.ExplainRequest: master.cluster.Explain,
        pb.CostRequest: master.cluster.Cost,
    }
    if isinstance(request_, pb.WatchRequest):
        answer: object = master.jobs.Watch(request_).read()
    else:
        answer = methods[type(request_)](request_, timeout=DEADLINE_S)
    status, error = await refusal(answer)
    assert status is INVALID, error.message
    assert len(error.message) < 300


async def test_whoever_calls_too_often_is_told_when_to_come_back(tmp_path: Path) -> None:
    async with rpc_master(tmp_path, share=UserLimits(calls_per_second=1)) as master:
        calls = [master.cluster.Config(pb.ConfigRequest()) for _ in range(40)]
        done = await asyncio.gather(*calls, return_exceptions=True)
        refused = [it for it in done if isinstance(it, grpc.aio.AioRpcError)]
        assert 0 < len(refused) < 40
        assert {it.code() for it in refused} == {EXHAUSTED}
        assert all("try again in" in str(it.details()) for it in refused)
        pushed = [dict(it.trailing_metadata())["grpc-retry-pushback-ms"] for it in refused]
        assert all(int(wait) >= 1_000 for wait in pushed)
        # Others are answered meanwhile.
        bob = ClusterStub(master.channel_of("bob", Role.VIEWER))
        assert (await bob.Config(pb.ConfigRequest(), timeout=DEADLINE_S)).json


async def test_the_client_waits_and_asks_again(tmp_path: Path) -> None:
    async with rpc_master(tmp_path, share=UserLimits(calls_per_second=4)) as master:
        secret = master.tokens.create("ann", Role.VIEWER)[1]

        def ask(client: Client) -> list[str]:
            return [client.config() for _ in range(3)]

        address = f"127.0.0.1:{master.ports.users}"
        with Client(address, authorities=master.authorities, token=secret, timeout_s=60) as client:
            asked = [asyncio.to_thread(ask, client) for _ in range(14)]
            async with asyncio.timeout(DEADLINE_S):
                answers = await asyncio.gather(*asked)
        assert sum(map(len, answers)) == 42


async def test_a_user_s_streams_are_limited_and_end_with_their_callers(tmp_path: Path) -> None:
    async with rpc_master(tmp_path, share=UserLimits(streams=2)) as master:
        await master.loop.change(lambda state: add_job(state, spec("resnet")))
        watches = [master.jobs.Watch(pb.WatchRequest()) for _ in range(2)]
        async with asyncio.timeout(DEADLINE_S):
            for watch in watches:
                await watch.read()
            status, error = await refusal(master.jobs.Watch(pb.WatchRequest()).read())
            assert (status, type(error)) == (EXHAUSTED, Busy)
            assert "limits.streams" in error.hint
            watches[0].cancel()
            assert await admitted(lambda: master.jobs.Watch(pb.WatchRequest()))


# -- what takes long -----------------------------------------------------------------------------


class StuckParser:
    """Takes the place of `parse_job`: it reads nothing, and ends when it is given up."""

    def __init__(self) -> None:
        self.begun = threading.Semaphore(0)
        self.given_up = threading.Semaphore(0)
        self.stop = threading.Event()

    def __call__(self, text: str, *, cancelled: parsing.Cancellation, **_: object) -> None:
        self.begun.release()
        try:
            while not self.stop.wait(0.005):
                cancelled.check()
        except BaseException:
            self.given_up.release()
            raise


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[StuckParser]:
    parser = StuckParser()
    monkeypatch.setattr(parsing, "parse_job", parser)
    yield parser
    parser.stop.set()


async def came(what: threading.Semaphore) -> None:
    assert await asyncio.to_thread(what.acquire, timeout=DEADLINE_S)


async def test_nobody_waits_for_a_file_that_is_being_parsed(
    master: RpcMaster, stuck: StuckParser
) -> None:
    users = [JobsStub(master.channel_of(name, Role.VIEWER)) for name in ("ann", "bob")]
    plans = [
        user.Plan(pb.PlanRequest(job_yaml="x")) for user in (*users, master.jobs) for _ in range(20)
    ]
    for _ in range(parsing._THREADS):
        await came(stuck.begun)
    # Tokens, joining and questions have threads of their own.
    async with asyncio.timeout(DEADLINE_S):
        made = await master.users.Create(pb.CreateTokenRequest(owner="new", role="user"))
        assert made.secret
        await master.users.Revoke(pb.RevokeTokenRequest(id=made.token.id))
        request = wpb.JoinRequest(instance_id="i-9", token="i-9/0/x", signing_request=b"x")
        status, _ = await refusal(EnrolmentStub(master.channel).Join(request))
        assert status is grpc.StatusCode.PERMISSION_DENIED
        assert await master.cluster.Describe(pb.DescribeRequest())
    for plan in plans:
        plan.cancel()


async def test_a_file_is_given_up_with_its_caller_and_in_turn(
    master: RpcMaster, stuck: StuckParser
) -> None:
    ann = JobsStub(master.channel_of("ann", Role.USER))
    first = ann.Plan(pb.PlanRequest(job_yaml="x"))
    await came(stuck.begun)
    second = ann.Submit(SUBMISSION)
    # A user has one file parsed at a time: the other thread is for others.
    other = master.jobs.Plan(pb.PlanRequest(job_yaml="x"))
    await came(stuck.begun)
    assert not stuck.begun.acquire(blocking=False)
    first.cancel()
    await came(stuck.given_up)
    await came(stuck.begun)
    for call in (second, other):
        call.cancel()
        await came(stuck.given_up)


# -- what waits to be sent -----------------------------------------------------------------------


@pytest.mark.parametrize("named", [(), ("resnet",)])
async def test_watchers_share_one_copy_of_each_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: tuple[str, ...]
) -> None:
    made: list[str] = []

    def job(*seen: object) -> pb.Job:
        message: pb.Job = of(*seen)
        made.append(message.id)
        return message

    of = views.job
    monkeypatch.setattr(job_messages.views, "job", job)
    monkeypatch.setattr(job_messages, "_KEPT_S", DEADLINE_S)
    async with rpc_master(tmp_path, share=UserLimits(watches_of_all=60)) as master:
        await master.loop.change(lambda state: add_job(state, spec("resnet")))
        watches = [master.jobs.Watch(pb.WatchRequest(jobs=named)) for _ in range(60)]
        async with asyncio.timeout(DEADLINE_S):
            first = [await watch.read() for watch in watches]
            assert {it.id for it in first} == {JOB}
            assert made == [JOB]

            def waits(state: State) -> None:
                state.put_run(replace(state.runs[RUN], waiting_for="a miracle"))

            await master.loop.change(waits)
            second = [await watch.read() for watch in watches]
    assert {it.tasks[0].waiting_for for it in second} == {"a miracle"}
    assert made == [JOB, JOB]


async def test_whoever_begins_to_watch_shares_messages_of_jobs_that_have_not_begun(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def job(*seen: object) -> pb.Job:
        message: pb.Job = of(*seen)
        made.append(message.id)
        return message

    of, now_s = views.job, [1_000.0]
    monkeypatch.setattr(job_messages.views, "job", job)
    monkeypatch.setattr(job_messages, "time", SimpleNamespace(monotonic=lambda: now_s[0]))

    def jobs(state: State) -> None:
        add_job(state, spec("waits"))
        running = add_job(state, spec("runs"))
        state.put_job(state.jobs[running].to(JobState.RUNNING, Millis(2_000)))

    await master.loop.change(jobs)
    for after_s, count in ((0, 2), (1, 2), (10, 3), (15, 4), (30, 6)):
        now_s[0] = 1_000.0 + after_s
        watch = master.jobs.Watch(pb.WatchRequest())
        async with asyncio.timeout(DEADLINE_S):
            first = await watch.read()
        assert {it.name for it in (first, *first.also)} == {"waits", "runs"}
        assert len(made) == count
        watch.cancel()
    assert made.count("waits-1") == 2


@pytest.mark.parametrize("named", [0, 21])
async def test_watches_of_all_jobs_and_of_many_are_limited_for_each_user(
    tmp_path: Path, named: int
) -> None:
    async with rpc_master(tmp_path, share=UserLimits(watches_of_all=2)) as master:
        jobs = [
            await master.loop.change(lambda state, n=n: add_job(state, spec(f"j{n}")))
            for n in range(max(1, named))
        ]
        request = pb.WatchRequest(jobs=jobs[:named])
        watches = [master.jobs.Watch(request) for _ in range(2)]
        async with asyncio.timeout(DEADLINE_S):
            for watch in watches:
                assert (await watch.read()).id in jobs
            status, error = await refusal(master.jobs.Watch(request).read())
            assert (status, type(error)) == (EXHAUSTED, Busy)
            assert "limits.watches_of_all" in error.hint
            # Other users, and watches of few jobs, are not in the same line.
            assert (await master.jobs.Watch(pb.WatchRequest(jobs=jobs[:1])).read()).id == jobs[0]
            bob = JobsStub(master.channel_of("bob", Role.VIEWER))
            assert (await bob.Watch(request).read()).id in jobs
            watches[0].cancel()
            assert await admitted(lambda: master.jobs.Watch(request))


def runs(state: State) -> None:
    add_instance(state)
    add_job(state, spec("resnet"))
    starting = state.runs[RUN].to(RunState.STARTING, Millis(1))
    state.put_run(replace(starting, attempt=1, instance=I1, target=I1))
    state.put_run(state.runs[RUN].to(RunState.RUNNING, Millis(2)))


async def test_readers_of_one_log_share_what_its_worker_sends(master: RpcMaster) -> None:
    await master.loop.change(runs)
    agent = await master.welcomed()
    readers = [master.jobs.Logs(pb.LogsRequest(job=JOB, follow=True)) for _ in range(30)]
    async with asyncio.timeout(DEADLINE_S):
        follow = (await agent.hear()).follow
        text = b"".join(b"line %d\n" % index for index in range(1_000))
        half = len(text) // 2
        for start, end in ((0, half), (half, len(text))):
            chunk = wpb.LogChunk(stream_id=follow.stream_id, data=text[start:end], offset=start)
            await agent.say(log=chunk)
            for reader in readers:
                read = b""
                while len(read) < end - start:
                    read += (await reader.read()).data
                assert read == text[start:end]
        for reader in readers:
            reader.cancel()
        # The next that it hears is that nobody reads any more: it was asked once.
        assert (await agent.hear()).unfollow.stream_id == follow.stream_id


async def test_an_agent_that_does_not_read_loses_its_session(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eva_master.adapters.rpc.workers.sessions._MOST_WAITING", 50)
    agent = await master.welcomed()
    session = master.sessions._sessions[I1]
    # In one go: the agent has no chance to read meanwhile.
    for index in range(60):
        session.send(wpb.MasterMessage(command_id=f"sync/{index}", sync=wpb.Sync()))
    assert len(session._outgoing) <= 50
    assert await agent.ended() is grpc.StatusCode.ABORTED
    assert "does not read" in (await agent.call.details())


async def test_a_page_ends_when_it_is_large_enough(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eva_master.adapters.rpc.server.pages._BYTES_PER_PAGE", 1_000)
    for index in range(6):
        await master.loop.change(lambda state, n=index: add_job(state, spec(f"j{n}", tasks=30)))
    for everything in (False, True):
        names, token, pages = [], "", 0
        while True:
            request = pb.ListJobsRequest(page_token=token, page_size=4, all=everything)
            page = await master.jobs.List(request, timeout=DEADLINE_S)
            assert page.ByteSize() < 5_000
            names += [job.id for job in page.jobs]
            token, pages = page.next_page_token, pages + 1
            if not token:
                break
        assert names == [f"j{index}-{index + 1}" for index in reversed(range(6))]
        assert pages > 2
