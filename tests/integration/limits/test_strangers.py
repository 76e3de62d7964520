"""Callers without a token keep each other, and instances that join, from nothing by their silence.

Each attack stays open while the instance joins, so nothing here depends on how long anything takes.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from eva_master.adapters.rpc.server.admission import places, strangers
from eva_master.adapters.rpc.workers import enrolment
from eva_wire._proto import api_pb2 as pb
from eva_wire._proto import worker_pb2 as wpb
from eva_wire._proto.api_pb2_grpc import JobsStub
from eva_wire._proto.worker_pb2_grpc import EnrolmentStub
from eva_wire.rpc.names import MASTER_NAME
from eva_wire.values.errors import Busy
from eva_wire.values.ids import InstanceId
from tests.fakes.rpc.server import DEADLINE_S, RpcMaster, add_instance, refusal, rpc_master

ONE = InstanceId("i-1")
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
JOIN = "/eva.worker.v1.Enrolment/Join"
JOIN_NODE = "/eva.worker.v1.Enrolment/JoinNode"
CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"
REFLECTION = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


@pytest.fixture
async def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RpcMaster]:
    # Silence lasts as long as the test.
    monkeypatch.setattr(strangers, "_ARRIVES_WITHIN_S", 10 * DEADLINE_S)
    async with rpc_master(tmp_path) as running:
        await running.loop.change(lambda state: add_instance(state, ONE))
        yield running


def request_of(master: RpcMaster, instance: InstanceId = ONE) -> wpb.JoinRequest:
    """Message of an instance that this master launched."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    signed = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return wpb.JoinRequest(
        instance_id=instance,
        token=master.join_tokens.token(instance, 1),
        signing_request=signed.public_bytes(Encoding.PEM),
    )


async def joins(master: RpcMaster) -> None:
    """Have an instance join by a connection of its own."""
    async with connection(master) as channel, asyncio.timeout(DEADLINE_S):
        assert (await EnrolmentStub(channel).Join(request_of(master))).certificate


@contextlib.asynccontextmanager
async def connection(master: RpcMaster) -> AsyncIterator[grpc.aio.Channel]:
    """A connection without a token that no other channel shares."""
    options = [
        ("grpc.ssl_target_name_override", MASTER_NAME),
        ("grpc.use_local_subchannel_pool", 1),
    ]
    credentials = grpc.ssl_channel_credentials(master.authorities)
    address = f"127.0.0.1:{master.ports.users}"
    async with grpc.aio.secure_channel(address, credentials, options) as channel:
        await channel.channel_ready()
        yield channel


def says_nothing(channel: grpc.aio.Channel, method: str) -> grpc.aio.StreamStreamCall:
    """A call of which no byte of a message is sent."""
    return channel.stream_stream(method)()


async def heard(count: Callable[[], int], calls: int) -> None:
    """Wait until the master has had so many calls to read from."""
    async with asyncio.timeout(DEADLINE_S):
        while count() < calls:
            await asyncio.sleep(0)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses of calls of which the master waits, or waited, for the request."""
    addresses: list[str] = []
    enter = places.AddressPlaces.enter

    def counted(held: places.AddressPlaces, address: str, leave: Callable[[], None]) -> object:
        addresses.append(address)
        return enter(held, address, leave)

    monkeypatch.setattr(places.AddressPlaces, "enter", counted)
    return addresses


@pytest.mark.parametrize("method", [JOIN, JOIN_NODE, CHECK, WATCH, REFLECTION])
async def test_silent_calls_on_one_connection_keep_no_instance_out(
    master: RpcMaster, begun: list[str], method: str
) -> None:
    calls = [says_nothing(master.channel, method) for _ in range(300)]
    await heard(lambda: len(begun), 300)
    await joins(master)
    for call in calls:
        call.cancel()


async def test_silent_calls_on_many_connections_keep_no_instance_out(
    master: RpcMaster, begun: list[str]
) -> None:
    async with contextlib.AsyncExitStack() as opened:
        for _ in range(30):
            channel = await opened.enter_async_context(connection(master))
            for method in (JOIN, JOIN_NODE, CHECK, WATCH, REFLECTION):
                opened.callback(says_nothing(channel, method).cancel)
                opened.callback(says_nothing(channel, method).cancel)
        await heard(lambda: len(begun), 300)
        await joins(master)


async def test_silent_streams_keep_no_health_watch_out(master: RpcMaster, begun: list[str]) -> None:
    for method in (WATCH, REFLECTION):
        for _ in range(300):
            says_nothing(master.channel, method)
    await heard(lambda: len(begun), 600)
    async with asyncio.timeout(DEADLINE_S):
        watch = health_pb2_grpc.HealthStub(master.channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status
        watch.cancel()


async def test_the_oldest_silent_call_of_an_address_makes_room_for_its_next(
    master: RpcMaster, begun: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master.strangers.unread, "_per_address", 3)
    calls = []
    for number in range(5):
        calls.append(says_nothing(master.channel, JOIN))
        await heard(lambda: len(begun), number + 1)
    for call in calls[:2]:
        status, error = await refusal(call.read())
        assert (status, type(error)) == (EXHAUSTED, Busy)
    assert not any(call.done() for call in calls[2:])


async def test_requests_that_no_seal_proves_wait_for_nothing_and_take_no_thread(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A made-up token is refused by its seal alone: no table, no key and no thread is looked at."""

    def unexpected(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(enrolment, "asked_for", unexpected)
    monkeypatch.setattr(type(master.join_tokens), "redeem", unexpected)
    stub = EnrolmentStub(master.channel)
    requests = [
        wpb.JoinRequest(instance_id=ONE, token=f"{ONE}/1/made-up", signing_request=b"x")
        for _ in range(300)
    ]
    refused = await asyncio.gather(*(refusal(stub.Join(it)) for it in requests))
    assert {status for status, _ in refused} == {grpc.StatusCode.PERMISSION_DENIED}


async def test_an_instance_that_asks_again_and_again_keeps_no_other_out(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An instance has one place in the line of those with a seal, whatever it sends."""
    entered, goes_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    redeem = type(master.join_tokens).redeem

    def slow(tokens: object, instance: InstanceId, *rest: object) -> None:
        if instance == ONE:
            loop.call_soon_threadsafe(entered.set)
            asyncio.run_coroutine_threadsafe(goes_on.wait(), loop).result(DEADLINE_S)
        redeem(tokens, instance, *rest)

    monkeypatch.setattr(type(master.join_tokens), "redeem", slow)
    two = InstanceId("i-2")
    await master.loop.change(lambda state: add_instance(state, two))
    stub, request = EnrolmentStub(master.channel), request_of(master)
    calls = [asyncio.ensure_future(refusal(stub.Join(request))) for _ in range(50)]
    await entered.wait()
    done, _ = await asyncio.wait(calls, timeout=DEADLINE_S, return_when=asyncio.FIRST_COMPLETED)
    assert {status for status, _ in (it.result() for it in done)} == {EXHAUSTED}
    async with asyncio.timeout(DEADLINE_S):
        assert (await stub.Join(request_of(master, two))).certificate
    goes_on.set()
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)


async def test_streams_are_shared_between_addresses(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address that has most of the places gives its oldest up to one that has none."""
    monkeypatch.setattr(master.strangers.streams, "_most", 3)
    monkeypatch.setattr(strangers, "address_of", lambda _: "10.0.0.1")
    stub = health_pb2_grpc.HealthStub(master.channel)

    async def watch() -> grpc.aio.UnaryStreamCall:
        call = stub.Watch(health_pb2.HealthCheckRequest())
        assert (await call.read()).status
        return call

    async with asyncio.timeout(DEADLINE_S):
        calls = [await watch() for _ in range(3)]
        status, error = await refusal(stub.Watch(health_pb2.HealthCheckRequest()).read())
        assert (status, type(error)) == (EXHAUSTED, Busy)
        monkeypatch.setattr(strangers, "address_of", lambda _: "10.0.0.2")
        other = await watch()
        status, error = await refusal(calls[0].read())
        assert (status, type(error)) == (EXHAUSTED, Busy)
    assert not any(call.done() for call in (*calls[1:], other))


async def test_a_reflection_stream_that_falls_silent_ends(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strangers, "_SILENT_S", 0.05)
    stub = reflection_pb2_grpc.ServerReflectionStub(master.channel)
    call = stub.ServerReflectionInfo()
    await call.write(reflection_pb2.ServerReflectionRequest(list_services=""))
    async with asyncio.timeout(DEADLINE_S):
        answer = await call.read()
        assert answer.list_services_response.service
        status, error = await refusal(call.read())
    assert (status, type(error)) == (EXHAUSTED, Busy)


async def test_users_are_served_beside_silent_callers(master: RpcMaster, begun: list[str]) -> None:
    for _ in range(300):
        says_nothing(master.channel, JOIN)
    await heard(lambda: len(begun), 300)
    await JobsStub(master.user).List(pb.ListJobsRequest(), timeout=DEADLINE_S)


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.1.2.3:4444", "10.1.2.3"),
        ("ipv6:%5B::1%5D:4444", "::/64"),
        ("ipv6:[2001:db8:1:2:3:4:5:6]:80", "2001:db8:1:2::/64"),
        ("ipv6:%5B2001:db8:1:2:ffff::9%5D:81", "2001:db8:1:2::/64"),
        ("ipv6:%5B::ffff:10.1.2.3%5D:81", "10.1.2.3"),
        ("ipv6:[fe80::1%25eth0]:81", "fe80::/64"),
        ("unix:/run/eva", "unix:/run/eva"),
    ],
)
def test_an_address_is_what_one_owner_has(peer: str, address: str) -> None:
    assert places.address_of(peer) == address
