"""Clocks that are apart are named as the reason why nobody gets through."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from eva_client.rpc.master import Client
from eva_master.adapters.loop.clock import SystemClock
from eva_master.adapters.pki.authority import Authority, private_pem
from eva_wire._proto import worker_pb2 as pb
from eva_wire._proto.worker_pb2_grpc import EnrolmentStub
from eva_wire.values.errors import Untrusted
from eva_wire.values.ids import Millis
from eva_worker.link.channel import dial, reason_of
from tests.fakes.patience import DEADLINE_S

HOUR_MS = 3_600_000


class Clock:
    """The master's clock, which may be wrong."""

    def __init__(self, ahead_ms: int) -> None:
        self._ahead_ms = ahead_ms

    def now(self) -> Millis:
        return Millis(SystemClock().now() + self._ahead_ms)


@contextmanager
def master(home: Path, ahead_ms: int) -> Iterator[tuple[str, bytes]]:
    """A server whose certificate is dated by a wrong clock; gives address and authorities."""
    authority = Authority.of(home, "test", Clock(ahead_ms))
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = authority.issue_master(key.public_key(), [], HOUR_MS)
    server = grpc.server(ThreadPoolExecutor(1))
    shown = grpc.ssl_server_credentials([(private_pem(key), certificate)])
    port = server.add_secure_port("127.0.0.1:0", shown)
    server.start()
    try:
        yield f"127.0.0.1:{port}", authority.certificates
    finally:
        server.stop(None).wait()


@pytest.mark.parametrize(
    ("ahead_ms", "words"), [(2 * HOUR_MS, "is not valid yet"), (-48 * HOUR_MS, "has expired")]
)
def test_a_user_is_told_of_the_clocks(tmp_path: Path, ahead_ms: int, words: str) -> None:
    with master(tmp_path, ahead_ms) as (address, authorities):
        client = Client(address, authorities=authorities, token="none")
        with pytest.raises(Untrusted, match="clock") as refused:
            client.describe()
        client.close()
    assert words in refused.value.message
    assert "UTC" in refused.value.message
    assert "date -u" in refused.value.hint


@pytest.mark.parametrize("ahead_ms", [2 * HOUR_MS, -48 * HOUR_MS])
async def test_a_worker_is_told_of_the_clocks(tmp_path: Path, ahead_ms: int) -> None:
    with master(tmp_path, ahead_ms) as (address, authorities):
        async with dial(address, authorities=authorities) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await EnrolmentStub(channel).Join(pb.JoinRequest(), timeout=DEADLINE_S)
    assert "clock of this machine" in reason_of(refused.value)
