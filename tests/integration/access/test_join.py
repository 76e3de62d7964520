"""Instances join with a token, once: over a real connection, with a database on disk."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from structlog.testing import capture_logs

from eva_master.adapters.pki.authority import private_pem
from eva_master.adapters.pki.tokens import JoinTokens
from eva_master.adapters.store import SqlJournal
from eva_master.adapters.store.join_tokens import JoinTokenTable
from eva_wire._proto import worker_pb2 as pb
from eva_wire._proto.worker_pb2_grpc import EnrolmentStub, WorkersStub
from eva_wire.rpc.errors import error_of
from eva_wire.values.errors import EvaError, InvalidConfig, NotAuthorised, StorageError
from eva_wire.values.ids import InstanceId, Millis
from eva_worker.link.channel import dial
from tests.fakes.rpc.server import RpcMaster, add_instance, rpc_master

ONE, TWO = InstanceId("i-1"), InstanceId("i-2")
MINUTE_MS = 60_000


class Clock:
    def __init__(self) -> None:
        self.time = Millis(1_800_000_000_000)

    def now(self) -> Millis:
        return self.time


class RunMetrics:
    """The tokens of a master that can be restarted."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.clock = Clock()
        self.open()

    def open(self) -> None:
        self._journal = SqlJournal.open(f"sqlite:///{self.database}")
        table = JoinTokenTable(self._journal.engine)
        self.tokens = JoinTokens.of(self.home, table, self.clock, MINUTE_MS)

    def close(self) -> None:
        self._journal.close()

    def restart(self) -> None:
        self.close()
        self.open()

    @property
    def database(self) -> Path:
        return self.home / "journal.db"

    def execute(self, statement: str) -> None:
        with closing(sqlite3.connect(self.database)) as connection:
            connection.execute(statement)
            connection.commit()


@pytest.fixture
def books(tmp_path: Path) -> Iterator[RunMetrics]:
    books = RunMetrics(tmp_path)
    yield books
    books.close()


# -- tokens and their table ----------------------------------------------------------------------


def test_a_launch_has_one_token_however_often_it_is_asked_for(books: RunMetrics) -> None:
    token = books.tokens.token(ONE, 1)
    books.clock.time += 10_000
    books.restart()
    assert books.tokens.token(ONE, 1) == token
    others = {books.tokens.token(ONE, 2), books.tokens.token(TWO, 1)}
    assert len({token, *others}) == 3


def test_a_repeated_launch_does_not_prolong_its_token(books: RunMetrics) -> None:
    token = books.tokens.token(ONE, 1)
    books.clock.time += MINUTE_MS - 1
    books.tokens.token(ONE, 1)
    books.tokens.redeem(ONE, token, b"key")
    books.clock.time += 1
    with pytest.raises(NotAuthorised, match="expired 0 s ago"):
        books.tokens.redeem(ONE, token, b"key")


def test_a_token_is_its_first_keys_across_restarts(books: RunMetrics) -> None:
    token = books.tokens.token(ONE, 1)
    books.tokens.redeem(ONE, token, b"key")
    books.restart()
    books.tokens.redeem(ONE, token, b"key")
    with pytest.raises(NotAuthorised, match="used before, for another key"):
        books.tokens.redeem(ONE, token, b"another key")


def test_an_expired_token_is_no_key_for_whoever_comes_late(books: RunMetrics) -> None:
    token = books.tokens.token(ONE, 1)
    books.clock.time += MINUTE_MS
    books.restart()
    with pytest.raises(NotAuthorised, match="expired") as refused:
        books.tokens.redeem(ONE, token, b"key")
    assert "join_token_lifetime" in refused.value.hint


@pytest.mark.parametrize(
    "wrong",
    ["", "secret", "i-1/1/", "i-1/2/{seal}", "i-1/01/{seal}", "i-1/\u0661/{seal}", "i-1/1/{seal}0"],
)
def test_what_no_master_made_is_no_token(books: RunMetrics, wrong: str) -> None:
    seal = books.tokens.token(ONE, 1).rpartition("/")[2]
    with pytest.raises(NotAuthorised, match="no join token of this cluster"):
        books.tokens.redeem(ONE, wrong.format(seal=seal), b"key")


def test_a_token_of_another_cluster_is_worth_nothing(books: RunMetrics, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = RunMetrics(tmp_path / "other")
    token = other.tokens.token(ONE, 1)
    other.close()
    books.tokens.token(ONE, 1)
    with pytest.raises(NotAuthorised, match="no join token of this cluster"):
        books.tokens.redeem(ONE, token, b"key")


def test_tokens_are_nowhere_in_the_database(books: RunMetrics) -> None:
    seal = books.tokens.token(ONE, 1).rpartition("/")[2]
    books.tokens.redeem(ONE, books.tokens.token(ONE, 1), b"key")
    books.close()
    written = b"".join(path.read_bytes() for path in books.home.glob("journal.db*"))
    assert b"join_tokens" in written
    assert seal.encode() not in written
    books.open()


def test_a_token_that_cannot_be_written_down_is_not_given_out(books: RunMetrics) -> None:
    books.execute(
        "CREATE TRIGGER full BEFORE INSERT ON join_tokens"
        " BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
    )
    with pytest.raises(StorageError, match="disk is full"):
        books.tokens.token(ONE, 1)


def test_a_use_that_cannot_be_written_down_is_none(books: RunMetrics) -> None:
    token = books.tokens.token(ONE, 1)
    books.execute(
        "CREATE TRIGGER full BEFORE UPDATE ON join_tokens"
        " BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
    )
    with pytest.raises(StorageError, match="disk is full"):
        books.tokens.redeem(ONE, token, b"key")
    books.execute("DROP TRIGGER full")
    books.tokens.redeem(ONE, token, b"another key")


def test_tokens_that_expired_long_ago_are_forgotten(books: RunMetrics) -> None:
    token = books.tokens.token(ONE, 1)
    books.clock.time += 8 * 24 * 60 * MINUTE_MS
    books.tokens.token(TWO, 1)
    with pytest.raises(NotAuthorised, match="not known any more"):
        books.tokens.redeem(ONE, token, b"key")


@pytest.mark.parametrize(
    "damaged", [b"", b"\n", b"short", b"\0" * 64, b"00" * 32, b" " * 64, b"abcdefgh\n" + b" " * 60]
)
def test_a_key_that_is_no_secret_is_refused_with_what_to_do(
    books: RunMetrics, damaged: bytes
) -> None:
    key = books.home / "join.key"
    secret = key.read_bytes()
    key.write_bytes(damaged)
    with pytest.raises(InvalidConfig, match=r"join\.key is no secret") as refused:
        books.restart()
    assert "restore it from a backup; or remove it" in refused.value.hint
    key.write_bytes(secret)
    books.restart()


# -- over the wire -------------------------------------------------------------------------------


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[RpcMaster]:
    async with rpc_master(tmp_path) as running:
        await running.loop.change(lambda state: add_instance(state, ONE))
        yield running


class Candidate:
    """An instance with a key and no certificate."""

    def __init__(self, master: RpcMaster, instance: InstanceId = ONE) -> None:
        self._master = master
        self.instance = instance
        self.key = ec.generate_private_key(ec.SECP256R1())

    def request(self) -> bytes:
        # What the request says about names counts for nothing.
        builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
        return builder.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM)

    async def join(self, token: str) -> pb.Identity:
        request = pb.JoinRequest(
            instance_id=self.instance, token=token, signing_request=self.request()
        )
        return await EnrolmentStub(self._master.channel).Join(request)

    async def refused(self, token: str) -> EvaError:
        with capture_logs() as logs, pytest.raises(grpc.aio.AioRpcError) as failed:
            await self.join(token)
        assert failed.value.code() is grpc.StatusCode.PERMISSION_DENIED
        error = error_of(
            failed.value.code(), failed.value.details() or "", failed.value.trailing_metadata()
        )
        assert isinstance(error, NotAuthorised)
        assert error.hint
        (log,) = (log for log in logs if log["event"] == "join refused")
        assert (log["log_level"], log["instance"]) == ("warning", self.instance)
        assert log["reason"] == error.message
        assert not token or token not in repr(logs)
        return error

    def channel(self, identity: pb.Identity) -> grpc.aio.Channel:
        channel = dial(
            f"127.0.0.1:{self._master.ports.workers}",
            authorities=identity.authorities,
            key=private_pem(self.key),
            certificate=identity.certificate,
        )
        self._master.channels.append(channel)
        return channel


async def test_a_token_is_good_for_a_certificate_that_opens_a_session(master: RpcMaster) -> None:
    candidate = Candidate(master)
    identity = await candidate.join(master.join_tokens.token(ONE, 1))
    await master.welcomed(ONE, channel=candidate.channel(identity))


async def test_a_lost_reply_may_be_asked_for_again(master: RpcMaster) -> None:
    token = master.join_tokens.token(ONE, 1)
    candidate = Candidate(master)
    await candidate.join(token)
    identity = await candidate.join(token)
    await master.welcomed(ONE, channel=candidate.channel(identity))


async def test_a_token_is_not_good_twice(master: RpcMaster) -> None:
    token = master.join_tokens.token(ONE, 1)
    await Candidate(master).join(token)
    error = await Candidate(master).refused(token)
    assert "used before, for another key" in error.message
    assert "terminate the instance" in error.hint


async def test_the_token_of_another_instance_is_refused(master: RpcMaster) -> None:
    await master.loop.change(lambda state: add_instance(state, TWO))
    error = await Candidate(master, TWO).refused(master.join_tokens.token(ONE, 1))
    assert "not that of instance 'i-2'" in error.message
    # It was not used up by whoever tried.
    await Candidate(master, ONE).join(master.join_tokens.token(ONE, 1))


async def test_an_instance_that_is_not_there_may_not_join(master: RpcMaster) -> None:
    gone = InstanceId("i-gone")
    error = await Candidate(master, gone).refused(master.join_tokens.token(gone, 1))
    assert "there is no instance 'i-gone'" in error.message


@pytest.mark.parametrize("token", ["", "secret"])
async def test_a_made_up_token_is_refused(master: RpcMaster, token: str) -> None:
    error = await Candidate(master).refused(token)
    assert "no join token of this cluster" in error.message


async def test_a_request_that_is_none_uses_up_no_token(master: RpcMaster) -> None:
    token = master.join_tokens.token(ONE, 1)
    request = pb.JoinRequest(instance_id=ONE, token=token, signing_request=b"nonsense")
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await EnrolmentStub(master.channel).Join(request)
    assert failed.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    await Candidate(master).join(token)


# -- renewal -------------------------------------------------------------------------------------


async def test_a_certificate_is_renewed_for_the_instance_that_has_one(master: RpcMaster) -> None:
    candidate = Candidate(master)
    identity = await candidate.join(master.join_tokens.token(ONE, 1))
    request = pb.RenewRequest(signing_request=candidate.request())
    renewed = await WorkersStub(candidate.channel(identity)).Renew(request)
    assert renewed.certificate != identity.certificate
    await master.welcomed(ONE, channel=candidate.channel(renewed))


async def test_a_certificate_is_not_renewed_for_another_key(master: RpcMaster) -> None:
    await master.loop.change(lambda state: add_instance(state, TWO))
    owner, thief = Candidate(master), Candidate(master)
    identity = await owner.join(master.join_tokens.token(ONE, 1))
    stub = WorkersStub(owner.channel(identity))
    # Neither a new key, nor that of another instance which has joined as well.
    other = Candidate(master, TWO)
    await other.join(master.join_tokens.token(TWO, 1))
    for candidate in (thief, other):
        with capture_logs() as logs, pytest.raises(grpc.aio.AioRpcError) as failed:
            await stub.Renew(pb.RenewRequest(signing_request=candidate.request()))
        assert failed.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert "is for another key" in (failed.value.details() or "")
        assert ("renewal refused", ONE) in [(log["event"], log.get("instance")) for log in logs]
    await stub.Renew(pb.RenewRequest(signing_request=owner.request()))


async def test_an_instance_that_is_gone_gets_no_new_certificate(master: RpcMaster) -> None:
    request = pb.RenewRequest(signing_request=Candidate(master).request())
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await WorkersStub(master.worker_channel("i-gone")).Renew(request)
    assert failed.value.code() is grpc.StatusCode.PERMISSION_DENIED
