"""Who may call what, over real connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from structlog.testing import capture_logs

from eva_master.adapters.rpc.server import access
from eva_master.model.events import CancelRequested, JobSubmitted
from eva_wire._proto import api_pb2 as pb
from eva_wire._proto import worker_pb2 as wpb
from eva_wire._proto.api_pb2_grpc import ClusterStub, JobsStub, TokensStub
from eva_wire.rpc.channels import service_config
from eva_wire.rpc.methods import METHODS, RetryRule
from eva_wire.values.errors import NotAuthenticated, NotAuthorised
from eva_wire.values.users import Role
from tests.fakes.rpc.server import (
    DEADLINE_S,
    JOB_YAML,
    RpcMaster,
    add_job,
    refusal,
    rpc_master,
    spec,
)

GRPCS_OWN = ("grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection")
SUBMISSION = pb.SubmitRequest(command_id="c1", job_yaml=JOB_YAML.format(name="resnet"))


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[RpcMaster]:
    async with rpc_master(tmp_path) as running:
        yield running


def methods_of(module: ModuleType) -> dict[str, list[str]]:
    """The methods of each service that a file of the protocol defines."""
    return {
        service.full_name: [f"/{service.full_name}/{method.name}" for method in service.methods]
        for service in module.DESCRIPTOR.services_by_name.values()
    }


NEEDED = {method: row.role for method, row in METHODS.items() if row.role is not None}
PROVEN = "eva.api.v1.Identities"
"""The service whose callers have no token yet."""


def test_every_method_of_the_protocol_has_a_row_and_every_row_a_method() -> None:
    users = {one for methods in methods_of(pb).values() for one in methods}
    joining = set(methods_of(wpb)["eva.worker.v1.Enrolment"])
    assert users | joining == set(METHODS)
    proving = set(methods_of(pb)[PROVEN])
    assert users - proving == NEEDED.keys()


async def test_every_service_of_the_users_port_is_in_the_table(master: RpcMaster) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(master.channel)
    question = reflection_pb2.ServerReflectionRequest(list_services="")
    async for answer in stub.ServerReflectionInfo(iter([question])):
        served = {service.name for service in answer.list_services_response.service}
    known = {**methods_of(pb), **methods_of(wpb)}
    assert served >= set(methods_of(pb))
    assert {one for it in served - set(GRPCS_OWN) for one in known[it]} == set(METHODS)


def test_the_client_repeats_what_the_table_says_and_nothing_else() -> None:
    told: dict[str, int] = {}
    for some in service_config()["methodConfig"]:
        for name in some["name"]:
            method = f"/{name['service']}/{name['method']}"
            assert told.setdefault(method, some["retryPolicy"]["maxAttempts"]) > 1
    assert set(told) == {name for name, row in METHODS.items() if row.retry is not RetryRule.NEVER}
    commands = {name for name, row in METHODS.items() if row.retry is RetryRule.COMMAND}
    assert {name for name, attempts in told.items() if attempts == 5} == commands


def test_every_command_with_an_id_is_repeated_until_the_master_is_back() -> None:
    for service in pb.DESCRIPTOR.services_by_name.values():
        for method in service.methods:
            row = METHODS[f"/{service.full_name}/{method.name}"]
            if "command_id" in method.input_type.fields_by_name:
                assert row.retry is RetryRule.COMMAND, method.full_name


async def attempts(channel: grpc.aio.Channel) -> dict[str, grpc.StatusCode]:
    """Answers to a caller of each method that takes a token; requests are empty."""
    every = pb.DESCRIPTOR.services_by_name.values()
    services = [service for service in every if service.full_name != PROVEN]
    return {
        f"/{service.full_name}/{method.name}": await attempt(channel, service, method)
        for service in services
        for method in service.methods
    }


async def attempt(
    channel: grpc.aio.Channel, service: ServiceDescriptor, method: MethodDescriptor
) -> grpc.StatusCode:
    """The status of a call, or OK once a stream begins to answer."""
    kinds = [
        "stream" if it else "unary" for it in (method.client_streaming, method.server_streaming)
    ]
    make = getattr(channel, "_".join(kinds))(f"/{service.full_name}/{method.name}")
    call = make(iter([b""]) if method.client_streaming else b"", timeout=DEADLINE_S)
    try:
        await (call.read() if method.server_streaming else call)
    except grpc.aio.AioRpcError as error:
        return error.code()
    call.cancel()
    return grpc.StatusCode.OK


@pytest.mark.parametrize("role", Role)
async def test_each_role_gets_through_where_it_may_and_nowhere_else(
    master: RpcMaster, role: Role
) -> None:
    await master.loop.change(lambda state: add_job(state, spec("resnet")))
    met = await attempts(master.channel_of("eve", role))
    assert met.keys() == NEEDED.keys()
    refused = {name for name, status in met.items() if status is grpc.StatusCode.PERMISSION_DENIED}
    assert refused == {name for name, needed in NEEDED.items() if not role.covers(needed)}
    assert grpc.StatusCode.UNAUTHENTICATED not in met.values()


async def test_nothing_gets_through_without_a_token(master: RpcMaster) -> None:
    met = await attempts(master.channel)
    assert met.keys() == NEEDED.keys()
    assert set(met.values()) == {grpc.StatusCode.UNAUTHENTICATED}


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (None, "no token came"),
        ("", "no token came"),
        ("Bearer ", "no token came"),
        ("Basic {secret}", "no token came"),
        ("{secret}", "no token came"),
        ("Bearer {secret}x", "does not know this token"),
        ("Bearer {id}", "does not know this token"),
        ("Bearer eva_{id}_", "does not know this token"),
        ("Bearer eva_ffffffff_guess", "does not know this token"),
        ("Bearer nonsense", "does not know this token"),
    ],
)
async def test_what_is_no_token_is_refused_with_a_hint_and_logged_without_it(
    master: RpcMaster, header: str | None, message: str
) -> None:
    token, secret = master.tokens.create("ben", Role.USER)
    metadata = []
    if header is not None:
        metadata = [("authorization", header.format(secret=secret, id=token.id))]
    with capture_logs() as logs:
        call = JobsStub(master.channel).Submit(SUBMISSION, metadata=metadata)
        status, error = await refusal(call)
    assert (status, type(error)) == (grpc.StatusCode.UNAUTHENTICATED, NotAuthenticated)
    assert message in error.message
    assert "operator" in error.hint
    assert master.loop.commands == []
    (entry,) = [one for one in logs if one["event"] == "refused"]
    assert entry["method"] == "/eva.api.v1.Jobs/Submit"
    assert entry["peer"].startswith("ipv4:127.0.0.1:")
    assert secret.rpartition("_")[2] not in str(logs)


async def test_the_scheme_may_be_written_in_any_case(master: RpcMaster) -> None:
    _, secret = master.tokens.create("ben", Role.VIEWER)
    metadata = [("authorization", f"BEARER  {secret}")]
    me = await TokensStub(master.channel).WhoAmI(pb.WhoAmIRequest(), metadata=metadata)
    assert (me.owner, me.role) == ("ben", "viewer")


async def test_a_viewer_who_submits_is_told_what_he_lacks(master: RpcMaster) -> None:
    token, secret = master.tokens.create("vic", Role.VIEWER)
    viewer = JobsStub(master.channel_with(secret))
    with capture_logs() as logs:
        status, error = await refusal(viewer.Submit(SUBMISSION))
    assert (status, type(error)) == (grpc.StatusCode.PERMISSION_DENIED, NotAuthorised)
    assert error.message == "Jobs.Submit needs role user; you are vic, with role viewer"
    assert "ask an operator" in error.hint
    assert master.loop.commands == []
    (entry,) = [one for one in logs if one["event"] == "refused"]
    assert (entry["token"], entry["owner"], entry["role"]) == (token.id, "vic", "viewer")
    assert secret not in str(logs)


async def test_a_method_without_an_entry_is_nobodys(
    master: RpcMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = {key: row for key, row in METHODS.items() if not key.endswith("/Cost")}
    monkeypatch.setattr(access, "METHODS", table)
    status, _ = await refusal(master.cluster.Cost(pb.CostRequest()))
    assert status is grpc.StatusCode.PERMISSION_DENIED


async def test_a_job_is_its_submitters_whatever_he_says(master: RpcMaster) -> None:
    ben = JobsStub(master.channel_of("ben", Role.USER))
    await ben.Submit(SUBMISSION, metadata=[("eva-owner", "ada")])
    (command,) = master.loop.commands
    assert isinstance(command, JobSubmitted)
    assert command.spec.owner == "ben"


async def test_callers_at_the_same_time_are_told_apart(master: RpcMaster) -> None:
    owners = [f"user{number}" for number in range(8)]
    stubs = [JobsStub(master.channel_of(owner, Role.USER)) for owner in owners]
    requests = [
        pb.SubmitRequest(
            command_id=f"{owner}/{context}", job_yaml=JOB_YAML.format(name=f"j{context}")
        )
        for context in range(5)
        for owner in owners
    ]
    calls = [
        stubs[owners.index(request.command_id.partition("/")[0])].Submit(request)
        for request in requests
    ]
    await asyncio.gather(*calls)
    submitted = [command for command in master.loop.commands if isinstance(command, JobSubmitted)]
    assert len(submitted) == len(requests)
    assert all(one.command.partition("/")[0] == one.spec.owner for one in submitted)


async def test_a_job_is_ended_by_its_owner_or_an_operator_and_nobody_else(
    master: RpcMaster,
) -> None:
    job = await master.loop.change(lambda state: add_job(state, spec("resnet", owner="ana")))
    request = pb.CancelRequest(command_id="c2", job=job)
    ben = JobsStub(master.channel_of("ben", Role.USER))
    with capture_logs() as logs:
        status, error = await refusal(ben.Cancel(request))
    assert (status, type(error)) == (grpc.StatusCode.PERMISSION_DENIED, NotAuthorised)
    assert error.message == f"job {job} belongs to ana; you are ben, with role user"
    assert error.hint == "ask ana or an operator to do it"
    assert master.loop.commands == []
    assert [one["of"] for one in logs if one["event"] == "refused"] == ["ana"]
    for owner, role in (("ana", Role.USER), ("oscar", Role.OPERATOR)):
        stub = JobsStub(master.channel_of(owner, role))
        assert (await stub.Cancel(request)).job_id == job
    assert master.loop.commands == [CancelRequested("c2", job, owner) for owner in ("ana", "oscar")]
    hurried = pb.CancelRequest(command_id="c3", job=job, now=True)
    assert type((await refusal(ben.Cancel(hurried)))[1]) is NotAuthorised
    await stub.Cancel(hurried)
    assert master.loop.commands[2:] == [CancelRequested("c3", job, "oscar", now=True)]


async def test_a_revoked_token_is_refused_from_the_next_call_on(master: RpcMaster) -> None:
    made = await master.users.Create(pb.CreateTokenRequest(owner="ben", role="user"))
    ben = master.channel_with(made.secret)
    assert (await TokensStub(ben).WhoAmI(pb.WhoAmIRequest())).owner == "ben"
    await master.users.Revoke(pb.RevokeTokenRequest(id=made.token.id))
    status, error = await refusal(JobsStub(ben).Submit(SUBMISSION))
    assert status is grpc.StatusCode.UNAUTHENTICATED
    assert error.message == f"token {made.token.id} of ben was revoked"
    assert master.loop.commands == []


async def test_a_stream_ends_with_its_token(master: RpcMaster) -> None:
    job = await master.loop.change(lambda state: add_job(state, spec("first")))
    token, secret = master.tokens.create("vic", Role.VIEWER)
    stream = JobsStub(master.channel_with(secret)).Watch(pb.WatchRequest())
    async with asyncio.timeout(DEADLINE_S):
        assert (await stream.read()).id == job
        master.tokens.revoke(token.id)
        await master.loop.change(lambda state: add_job(state, spec("second")))
        with pytest.raises(grpc.aio.AioRpcError):
            await stream.read()
        assert await stream.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_tokens_are_made_listed_and_revoked(master: RpcMaster) -> None:
    request = pb.CreateTokenRequest(owner="ana", role="viewer", lifetime_ms=60_000)
    made = await master.users.Create(request)
    assert (made.token.owner, made.token.role) == ("ana", "viewer")
    assert made.token.expires_ms - made.token.created_ms == 60_000
    (mine, hers) = (await master.users.List(pb.ListTokensRequest())).tokens
    made.token.now_ms = hers.now_ms  # Time has passed in between.
    assert (mine.owner, mine.expires_ms, hers) == ("ada", 0, made.token)
    for _ in range(2):
        await master.users.Revoke(pb.RevokeTokenRequest(id=hers.id))
    (_, hers) = (await master.users.List(pb.ListTokensRequest())).tokens
    assert hers.revoked_ms > 0


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (pb.CreateTokenRequest(owner="", role="user"), "'' cannot be an owner"),
        (pb.CreateTokenRequest(owner="a b", role="user"), "'a b' cannot be an owner"),
        (pb.CreateTokenRequest(owner="ana", role="root"), "there is no role 'root'"),
        (
            pb.CreateTokenRequest(owner="ana", role="user", lifetime_ms=2**63),
            "a token lasts a hundred years at most",
        ),
    ],
)
async def test_tokens_that_cannot_be(
    master: RpcMaster, request_: pb.CreateTokenRequest, message: str
) -> None:
    status, error = await refusal(master.users.Create(request_))
    assert (status, error.message) == (grpc.StatusCode.INVALID_ARGUMENT, message)
    assert error.hint
    assert len(master.tokens.all()) == 1


async def test_a_token_that_is_not_there_cannot_be_revoked(master: RpcMaster) -> None:
    status, _ = await refusal(master.users.Revoke(pb.RevokeTokenRequest(id="nope")))
    assert status is grpc.StatusCode.NOT_FOUND


async def test_making_and_revoking_leave_a_trace_without_the_secret(master: RpcMaster) -> None:
    with capture_logs() as logs:
        made = await master.users.Create(pb.CreateTokenRequest(owner="ana", role="user"))
        await master.users.Revoke(pb.RevokeTokenRequest(id=made.token.id))
    assert [(one["event"], one["token"], one["by"]) for one in logs] == [
        ("token made", made.token.id, "ada"),
        ("token revoked", made.token.id, "ada"),
    ]
    assert made.secret not in str(logs)


async def test_a_cluster_reads_for_a_viewer(master: RpcMaster) -> None:
    viewer = ClusterStub(master.channel_of("vic", Role.VIEWER))
    assert (await viewer.Describe(pb.DescribeRequest())).cluster == "test"
