"""Connections by which nobody proves anything keep no instance, agent or user out of a port.

As many as the port takes, and more, are made and not given up while others connect.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc
import pytest

from eva_master.adapters.rpc.server import ports
from eva_master.adapters.rpc.server.admission import connections
from eva_master.adapters.rpc.server.admission.connections import (
    Callers,
    Connection,
    Doorkeeper,
    superfluous,
)
from eva_wire._proto import api_pb2 as pb
from eva_wire._proto.api_pb2_grpc import ClusterStub, JobsStub
from eva_wire._proto.worker_pb2_grpc import EnrolmentStub
from eva_wire.rpc.names import MASTER_NAME
from eva_wire.values.ids import InstanceId
from eva_wire.values.users import Role
from tests.fakes.rpc.server import DEADLINE_S, RpcMaster, add_instance, rpc_master
from tests.integration.limits.test_strangers import request_of

MOST = 48
"""Connections of a port."""


def client_hello() -> bytes:
    """The first bytes of a handshake that is never finished."""
    context = ssl.create_default_context()
    sent = ssl.MemoryBIO()
    handshake = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="a")
    with contextlib.suppress(ssl.SSLWantReadError):
        handshake.do_handshake()
    return sent.read()


SAID = {"nothing": b"", "a byte": b"\x16", "half a handshake": client_hello(), "HTTP": b"GET / "}


@contextlib.asynccontextmanager
async def held(address: tuple[str, int], said: bytes, count: int) -> AsyncIterator[None]:
    """So many connections that nobody but the master ends."""
    async with contextlib.AsyncExitStack() as opened:
        for _ in range(count):
            _, writer = await asyncio.open_connection(*address)
            opened.callback(writer.close)
            writer.write(said)
        yield


@pytest.fixture
async def master(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RpcMaster]:
    monkeypatch.setattr(ports, "_MOST_CONNECTIONS", MOST)
    monkeypatch.setattr(ports, "_HANDSHAKE_MS", round(10_000 * DEADLINE_S))
    monkeypatch.setattr(connections, "_LOOK_EVERY_S", 0.02)
    async with rpc_master(tmp_path) as running:
        await running.loop.change(lambda state: add_instance(state, InstanceId("i-1")))
        yield running


@contextlib.asynccontextmanager
async def connection(master: RpcMaster) -> AsyncIterator[grpc.aio.Channel]:
    options = [
        ("grpc.ssl_target_name_override", MASTER_NAME),
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_reconnect_backoff_ms", 100),
        ("grpc.initial_reconnect_backoff_ms", 10),
    ]
    credentials = grpc.ssl_channel_credentials(master.authorities)
    address = f"127.0.0.1:{master.ports.users}"
    async with grpc.aio.secure_channel(address, credentials, options) as channel:
        yield channel


@pytest.mark.parametrize("said", SAID)
async def test_connections_that_prove_nothing_keep_no_instance_out(
    master: RpcMaster, said: str
) -> None:
    address, request = ("127.0.0.1", master.ports.users), request_of(master)
    async with held(address, SAID[said], 4 * MOST), asyncio.timeout(DEADLINE_S):
        while True:
            async with connection(master) as channel:
                join = EnrolmentStub(channel).Join
                with contextlib.suppress(grpc.aio.AioRpcError):
                    assert (await join(request, wait_for_ready=True)).certificate
                    break


async def test_connections_without_a_call_keep_no_instance_out_and_end_no_user_s(
    master: RpcMaster,
) -> None:
    list_jobs = JobsStub(master.user).List
    await list_jobs(pb.ListJobsRequest(), timeout=DEADLINE_S)
    watch = JobsStub(master.user).Watch(pb.WatchRequest())
    request = request_of(master)
    async with contextlib.AsyncExitStack() as opened, asyncio.timeout(DEADLINE_S):
        for _ in range(2 * MOST):
            channel = await opened.enter_async_context(connection(master))
            channel.get_state(try_to_connect=True)
        while True:
            channel = await opened.enter_async_context(connection(master))
            join = EnrolmentStub(channel).Join
            with contextlib.suppress(grpc.aio.AioRpcError):
                assert (await join(request, wait_for_ready=True)).certificate
                break
        assert not watch.done()
        await list_jobs(pb.ListJobsRequest())


async def test_connections_without_a_certificate_keep_no_agent_out(master: RpcMaster) -> None:
    first = await master.welcomed("i-1")
    address = "127.0.0.1", master.ports.workers
    async with held(address, SAID["half a handshake"], 4 * MOST), asyncio.timeout(DEADLINE_S):
        for number in range(2, 6):
            while True:
                # An agent whose connection is ended dials again.
                agent = await master.agent(f"i-{number}")
                with contextlib.suppress(grpc.aio.AioRpcError):
                    if await agent.call.read() is not grpc.aio.EOF:
                        break
    assert not first.call.done()


# -- the rule ------------------------------------------------------------------------------------


def made(number: int, peer: str, seen_s: float | None = None) -> Connection:
    return Connection(1, number, number, peer, float(number) if seen_s is None else seen_s)


def ended(all_: list[Connection], holders: dict[str, str], most: int) -> list[int]:
    return [it.inode for it in superfluous(all_, holders, most)]


def test_strangers_have_half_of_what_is_left_and_lose_their_oldest() -> None:
    strangers = [made(n, f"ipv4:10.0.0.1:{n}") for n in range(100)]
    assert ended(strangers, {}, 200) == []
    assert ended(strangers, {}, 120) == list(range(40))
    known = {it.peer: "ann" for it in strangers[:40]}
    # (120 - 40) / 2 of the 60 that are left.
    assert ended(strangers, known, 120) == list(range(40, 60))


def test_the_address_with_most_connections_loses_them() -> None:
    many = [made(n, f"ipv4:10.0.0.1:{n}") for n in range(50, 80)]
    few = [made(n, f"ipv4:10.0.0.2:{n}") for n in range(5)]
    network = [made(n, f"ipv6:[2001:db8::{n:x}]:{n}") for n in range(100, 110)]
    assert ended([*many, *few, *network], {}, 60) == list(range(50, 65))


def test_a_user_with_very_many_connections_makes_room_for_others() -> None:
    users = [made(n, f"ipv4:10.0.0.1:{n}") for n in range(100)]
    holders = {it.peer: "eve" if it.inode < 95 else f"user {it.inode}" for it in users}
    assert ended(users, holders, 120) == list(range(10))


@contextlib.contextmanager
def listening() -> Iterator[tuple[socket.socket, int]]:
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        yield server, server.getsockname()[1]


def test_a_look_finds_connections_of_its_ports_alone_and_forgets_who_has_gone() -> None:
    callers = Callers()
    keeper = Doorkeeper(callers, 8)
    with (
        listening() as (server, port),
        listening() as (other, other_port),
        contextlib.ExitStack() as s,
    ):
        keeper._ports = (port,)
        clients, others = [], []
        for number in range(8):
            clients.append(s.enter_context(socket.create_connection(("127.0.0.1", port))))
            accepted, peer = server.accept()
            s.enter_context(accepted)
            if number == 0:
                callers.admit(f"ipv4:{peer[0]}:{peer[1]}", "ann")
            others.append(s.enter_context(socket.create_connection(("127.0.0.1", other_port))))
            s.enter_context(other.accept()[0])
            keeper._connections()
        keeper.look()
        for it in (*clients, *others):
            it.setblocking(False)

        def is_over(client: socket.socket) -> bool:
            try:
                return client.recv(1) == b""
            except BlockingIOError:
                return False

        # The first is known; of the seven others (8 - 1) // 2 stay.
        assert [is_over(it) for it in clients] == [False, *[True] * 4, *[False] * 3]
        assert not any(map(is_over, others))
        assert list(callers.holders.values()) == ["ann"]
    keeper.look()
    assert not callers.holders


@pytest.mark.parametrize(
    ("host", "peer"),
    [
        ("10.0.0.1", "ipv4:10.0.0.1:7"),
        ("::ffff:10.0.0.1", "ipv4:10.0.0.1:7"),
        ("2001:db8::1", "ipv6:[2001:db8::1]:7"),
    ],
)
def test_peers_are_named_as_grpc_names_them(host: str, peer: str) -> None:
    assert connections._peer(host, 7) == peer


async def test_users_are_known_by_their_connections(master: RpcMaster) -> None:
    before = len(master.callers.holders)
    bob = ClusterStub(master.channel_of("bob", Role.VIEWER))
    await bob.Config(pb.ConfigRequest(), timeout=DEADLINE_S)
    assert "bob" in master.callers.holders.values()
    await master.welcomed("i-1")
    assert "instance i-1" in master.callers.holders.values()
    assert len(master.callers.holders) == before + 2
