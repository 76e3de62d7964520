"""Who gets through to whom: real servers, real handshakes."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from wsgiref.types import StartResponse, WSGIEnvironment

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from eva_master.adapters.http.server import HttpsServer
from eva_master.adapters.loop.clock import SystemClock
from eva_master.adapters.pki.authority import Authority, private_pem
from eva_master.adapters.pki.server import ServerIdentity
from eva_master.adapters.rpc.server.ports import server_credentials
from eva_wire._proto import api_pb2, worker_pb2
from eva_wire._proto.api_pb2_grpc import ClusterServicer, ClusterStub
from eva_wire._proto.api_pb2_grpc import add_ClusterServicer_to_server as add_cluster
from eva_wire._proto.worker_pb2_grpc import WorkersStub
from eva_wire.rpc.channels import open_channel
from eva_wire.rpc.names import MASTER_NAME
from eva_wire.values.ids import InstanceId, Millis
from eva_worker.link.channel import dial
from tests.fakes.patience import DEADLINE_S
from tests.fakes.rpc.authority import authority
from tests.fakes.rpc.server import RpcMaster, rpc_master

HOUR_MS = 3_600_000
ONE = InstanceId("i-1")
OK, UNAVAILABLE = grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE


class Clock:
    """The machine's, set wrong at will."""

    def __init__(self, ahead_ms: int = 0) -> None:
        self.ahead_ms = ahead_ms

    def now(self) -> Millis:
        return Millis(SystemClock().now() + self.ahead_ms)


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[RpcMaster]:
    async with rpc_master(tmp_path) as running:
        yield running


@pytest.fixture
def stranger(tmp_path: Path) -> Authority:
    """The authority of another cluster, which has the same name."""
    return Authority.of(tmp_path / "stranger", "test", SystemClock())


def agent(of: Authority) -> tuple[bytes, bytes]:
    """Key and certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    return private_pem(key), of.issue_agent(key.public_key(), ONE, HOUR_MS)


async def session(channel: grpc.aio.Channel) -> grpc.StatusCode:
    """How a session ends, or that it begins."""
    async with channel, asyncio.timeout(DEADLINE_S):
        call = WorkersStub(channel).Session()
        try:
            await call.write(
                worker_pb2.WorkerMessage(register=worker_pb2.Register(instance_id=ONE))
            )
            if isinstance(await call.read(), worker_pb2.MasterMessage):
                return OK
        except grpc.aio.AioRpcError:
            pass
        return await call.code()


async def question(channel: grpc.aio.Channel) -> grpc.StatusCode:
    """How a user's call ends."""
    async with channel:
        call = ClusterStub(channel).Describe(api_pb2.DescribeRequest(), timeout=DEADLINE_S)
        return await call.code()


def blocking_question(channel: grpc.Channel) -> grpc.StatusCode:
    """The same on a channel of the command."""
    with channel:
        try:
            ClusterStub(channel).Describe(api_pb2.DescribeRequest(), timeout=DEADLINE_S)
        except grpc.RpcError as error:
            return error.code()
        return OK


# -- the master's ports --------------------------------------------------------------------------


async def test_who_speaks_plainly_is_not_heard(master: RpcMaster) -> None:
    for port in master.ports:
        address = f"127.0.0.1:{port}"
        assert await session(grpc.aio.insecure_channel(address)) is UNAVAILABLE
        assert await question(grpc.aio.insecure_channel(address)) is UNAVAILABLE
    assert master.sessions.connected == 0


async def test_agents_get_in_with_a_certificate_of_this_cluster_alone(
    master: RpcMaster, stranger: Authority, tmp_path: Path
) -> None:
    await master.launched(ONE)
    ours = authority().authority
    yesterdays = Authority(ours._key, ours._bundle, Clock(-2 * HOUR_MS))
    tomorrows = Authority(ours._key, ours._bundle, Clock(2 * HOUR_MS))
    masters = ServerIdentity(ours, tmp_path, (), SystemClock()).current()
    shown = {
        "its own": (agent(ours), OK),
        "none": ((None, None), UNAVAILABLE),
        "another cluster's": (agent(stranger), UNAVAILABLE),
        "an expired one": (agent(yesterdays), UNAVAILABLE),
        "one that is not valid yet": (agent(tomorrows), UNAVAILABLE),
        "the master's": ((masters.key, masters.certificate), UNAVAILABLE),
    }
    for what, ((key, certificate), status) in shown.items():
        channel = dial(
            f"127.0.0.1:{master.ports.workers}",
            authorities=master.authorities,
            key=key,
            certificate=certificate,
        )
        assert await session(channel) is status, what


async def test_an_agents_certificate_makes_no_user(master: RpcMaster) -> None:
    key, certificate = agent(authority().authority)
    for port, status in (
        (master.ports.users, grpc.StatusCode.UNAUTHENTICATED),
        (master.ports.workers, grpc.StatusCode.UNIMPLEMENTED),
    ):
        channel = dial(
            f"127.0.0.1:{port}", authorities=master.authorities, key=key, certificate=certificate
        )
        assert await question(channel) is status


async def test_a_users_token_makes_no_agent(master: RpcMaster) -> None:
    call = WorkersStub(master.user).Renew(worker_pb2.RenewRequest(), timeout=DEADLINE_S)
    assert await call.code() is grpc.StatusCode.UNIMPLEMENTED


# -- what clients let pass for the master --------------------------------------------------------


class Rogue(ClusterServicer):
    """Answers like a master."""

    async def Describe(self, request: object, context: object) -> api_pb2.ClusterState:
        return api_pb2.ClusterState()


@asynccontextmanager
async def serving(credentials: grpc.ServerCredentials) -> AsyncIterator[str]:
    """The address of a rogue."""
    server = grpc.aio.server()
    add_cluster(Rogue(), server)
    port = server.add_secure_port("127.0.0.1:0", credentials)
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(0)


async def test_an_agents_certificate_makes_no_master() -> None:
    trusted = authority().certificates
    async with serving(grpc.ssl_server_credentials([agent(authority().authority)])) as address:
        users = open_channel(address, authorities=trusted, token="secret")
        assert await asyncio.to_thread(blocking_question, users) is UNAVAILABLE
        assert await question(dial(address, authorities=trusted)) is UNAVAILABLE
        # Nothing but the name is in the way.
        options = [("grpc.ssl_target_name_override", "localhost")]
        lax = grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(trusted), options)
        assert await question(lax) is OK


async def test_another_clusters_master_is_none(stranger: Authority, tmp_path: Path) -> None:
    identity = ServerIdentity(stranger, tmp_path, (), SystemClock())
    async with serving(server_credentials(identity, agents_only=False)) as address:
        for trusted, status in (
            (authority().certificates, UNAVAILABLE),
            (stranger.certificates, OK),
            (stranger.certificates + authority().certificates, OK),
        ):
            users = open_channel(address, authorities=trusted, token="secret")
            assert await asyncio.to_thread(blocking_question, users) is status
            assert await question(dial(address, authorities=trusted)) is status


async def test_a_server_without_tls_is_no_master() -> None:
    server = grpc.aio.server()
    add_cluster(Rogue(), server)
    address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    await server.start()
    trusted = authority().certificates
    users = open_channel(address, authorities=trusted, token="secret")
    assert await asyncio.to_thread(blocking_question, users) is UNAVAILABLE
    assert await question(dial(address, authorities=trusted)) is UNAVAILABLE
    await server.stop(0)


async def test_while_an_authority_is_replaced_both_are_trusted(tmp_path: Path) -> None:
    clock = SystemClock()
    older = Authority.of(tmp_path / "older", "test", clock)
    newer = Authority.of(tmp_path / "newer", "test", clock)
    bundle = newer.certificates + older.certificates
    (tmp_path / "newer" / "ca.pem").write_bytes(bundle)
    both = Authority.of(tmp_path / "newer", "test", clock)
    identity = ServerIdentity(both, tmp_path, (), clock)
    async with serving(server_credentials(identity, agents_only=True)) as address:
        for key, certificate in (agent(older), agent(both)):
            for trusted, status in ((bundle, OK), (older.certificates, UNAVAILABLE)):
                channel = dial(address, authorities=trusted, key=key, certificate=certificate)
                assert await question(channel) is status


# -- renewal -------------------------------------------------------------------------------------


async def test_a_renewed_certificate_is_shown_to_whoever_comes_next(tmp_path: Path) -> None:
    clock = Clock(-2 * HOUR_MS)
    ours = Authority.of(tmp_path, "test", clock)
    identity = ServerIdentity(ours, tmp_path, (), clock, life_ms=3 * HOUR_MS)
    async with serving(server_credentials(identity, agents_only=False)) as address:
        first = await shown_by(address, ours)
        assert await shown_by(address, ours) == first
        async with dial(address, authorities=ours.certificates) as standing:
            stub = ClusterStub(standing)
            await stub.Describe(api_pb2.DescribeRequest())
            clock.ahead_ms = 1000
            assert await shown_by(address, ours) not in (None, first)
            # Who is connected stays so.
            await stub.Describe(api_pb2.DescribeRequest(), wait_for_ready=False)
        assert await question(dial(address, authorities=ours.certificates)) is OK


async def shown_by(address: str, trusted: Authority, name: str = MASTER_NAME) -> int:
    """Serial number of the certificate that a server shows."""
    context = ssl.create_default_context(cadata=trusted.certificates.decode())
    host, _, port = address.partition(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname=name)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return x509.load_der_x509_certificate(der).serial_number


# -- metrics -------------------------------------------------------------------------------------


@pytest.fixture
def https(tmp_path: Path) -> Iterator[tuple[HttpsServer, Authority, Clock]]:
    def hello(_: WSGIEnvironment, start: StartResponse) -> list[bytes]:
        start("200 OK", [("Content-Length", "5")])
        return [b"hello"]

    clock = Clock(-2 * HOUR_MS)
    ours = Authority.of(tmp_path, "test", clock)
    identity = ServerIdentity(ours, tmp_path, ("127.0.0.1",), clock, life_ms=3 * HOUR_MS)
    server = HttpsServer("127.0.0.1", 0, hello, identity)
    yield server, ours, clock
    server.stop()


Https = tuple[HttpsServer, Authority, Clock]


async def answer(port: int, context: ssl.SSLContext | None) -> bytes:
    async with asyncio.timeout(DEADLINE_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(b"GET /metrics HTTP/1.0\r\n\r\n")
        try:
            return await reader.read()
        finally:
            writer.close()


async def test_metrics_are_for_those_who_know_the_authority(https: Https) -> None:
    server, ours, _ = https
    trusting = ssl.create_default_context(cadata=ours.certificates.decode())
    assert (await answer(server.port, trusting)).endswith(b"hello")
    with pytest.raises(ssl.SSLCertVerificationError):
        await answer(server.port, ssl.create_default_context())
    assert b"hello" not in await answer(server.port, None)


async def test_a_silent_client_keeps_nobody_from_the_metrics(https: Https) -> None:
    server, ours, _ = https
    trusting = ssl.create_default_context(cadata=ours.certificates.decode())
    with socket.create_connection(("127.0.0.1", server.port)):
        assert (await answer(server.port, trusting)).endswith(b"hello")


async def test_clients_of_the_metrics_are_few_and_have_little_time(
    https: Https, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, ours, _ = https
    monkeypatch.setattr(server._server, "_most_per_host", 3)
    trusting = ssl.create_default_context(cadata=ours.certificates.decode())
    dripping = [
        await asyncio.open_connection("127.0.0.1", server.port, ssl=trusting) for _ in range(3)
    ]
    for _, writer in dripping:
        writer.write(b"GET /me")
    # One more is closed, before or in its handshake.
    with pytest.raises(OSError):  # noqa: PT011 - which one is up to the timing
        await answer(server.port, trusting)
    before = threading.active_count()
    # Their time is up, whatever they have sent meanwhile.
    with server._server._lock:
        for connection, (_, host) in list(server._server._open.items()):
            server._server._open[connection] = (0.0, host)
    async with asyncio.timeout(DEADLINE_S):
        for reader, writer in dripping:
            with contextlib.suppress(OSError):
                assert b"200" not in await reader.read()
            writer.close()
        while server._server._open:
            await asyncio.sleep(0.01)
    assert threading.active_count() <= before
    assert (await answer(server.port, trusting)).endswith(b"hello")


async def test_metrics_show_the_renewed_certificate(https: Https) -> None:
    server, ours, clock = https
    address = f"127.0.0.1:{server.port}"
    first = await shown_by(address, ours, "127.0.0.1")
    assert await shown_by(address, ours, "127.0.0.1") == first
    clock.ahead_ms = 1000
    assert await shown_by(address, ours, "127.0.0.1") != first
