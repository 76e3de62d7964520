"""Many calls at once, while the master has no time to take them, cost no caller its answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from eva_master.adapters.pki.names import MASTER_NAME
from eva_master.adapters.rpc._proto import api_pb2 as pb
from eva_master.adapters.rpc._proto.api_pb2_grpc import ClusterStub
from tests.fakes.rpc.server import DEADLINE_S, RpcMaster, rpc_master

_CALLS = 5_000
"""More than the three thousand that gRPC keeps by default until they are taken."""


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[RpcMaster]:
    async with rpc_master(tmp_path) as running:
        yield running


async def test_calls_that_come_while_the_master_is_busy_are_all_answered(master: RpcMaster) -> None:
    credentials = grpc.ssl_channel_credentials(master.authorities)
    options = [("grpc.ssl_target_name_override", MASTER_NAME)]
    address = f"127.0.0.1:{master.ports.users}"
    with grpc.secure_channel(address, credentials, options) as channel:
        await asyncio.to_thread(grpc.channel_ready_future(channel).result, DEADLINE_S)
        describe = ClusterStub(channel).Describe
        # The master's loop is this one, which has no turn until all calls are sent.
        calls = [describe.future(pb.DescribeRequest(), timeout=DEADLINE_S) for _ in range(_CALLS)]
        async with asyncio.timeout(DEADLINE_S):
            await asyncio.to_thread(lambda: [call.exception() for call in calls])
        codes = {call.code() for call in calls}
    assert codes == {grpc.StatusCode.UNAUTHENTICATED}
