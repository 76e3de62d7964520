"""Operators list and try out receivers over gRPC, and nobody else does."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest

from eva_wire._proto import api_pb2 as pb
from eva_wire._proto.api_pb2_grpc import NoticesStub
from eva_wire.values.errors import NotFound
from eva_wire.values.users import Role
from tests.fakes.notices.receivers import Feed, ReceiverServer, receiver
from tests.fakes.rpc.server import refusal, rpc_master


async def test_an_operator_tries_out_a_receiver_and_a_user_does_not(tmp_path: Path) -> None:
    server = ReceiverServer(secure=True)
    with Feed(tmp_path / "j.db").sending(receiver(server.url)) as sender:
        async with rpc_master(tmp_path, notices=sender) as master:
            secrets = [master.tokens.create("o", role)[1] for role in Role]
            stubs = {
                role: NoticesStub(master.channel_with(secret))
                for role, secret in zip(Role, secrets, strict=True)
            }
            operator = stubs.pop(Role.OPERATOR)
            (trial,) = (await operator.Test(pb.TestNoticeRequest(receiver="ops"))).trials
            assert (trial.accepted, trial.status, trial.reason) == (True, 200, "")
            (listed,) = (await operator.List(pb.ListReceiversRequest())).receivers
            assert (listed.name, listed.url) == ("ops", f"https://127.0.0.1:{server.port}")
            status, error = await refusal(operator.Test(pb.TestNoticeRequest(receiver="x" * 999)))
            assert status is grpc.StatusCode.NOT_FOUND
            assert isinstance(error, NotFound)
            assert "receivers: ops" in error.hint
            for stub in stubs.values():
                for call in (
                    stub.Test(pb.TestNoticeRequest()),
                    stub.List(pb.ListReceiversRequest()),
                ):
                    with pytest.raises(grpc.aio.AioRpcError) as caught:
                        await call
                    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert len(server.requests) == 1
    server.close()
