"""Every method of the protocol, and who gets through by docs/reference/security.md."""

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message_factory import GetMessageClass

from eva_master.adapters.identities.prover import IdentityProver
from eva_master.adapters.identities.sts import Sts
from eva_master.adapters.loop.clock import SystemClock
from eva_master.adapters.rpc.attach.attachments import Ticket
from eva_wire._proto import attach_pb2
from eva_wire._proto import worker_pb2 as wpb
from eva_wire._proto.worker_pb2_grpc import EnrolmentStub
from eva_wire.values.ids import InstanceId, JobId
from eva_wire.values.users import Role
from eva_worker.link.channel import dial
from tests.checks.sources import PRODUCT
from tests.fakes.rpc.authority import authority
from tests.fakes.rpc.server import (
    DEADLINE_S,
    RpcMaster,
    add_instance,
    add_job,
    rpc_master,
    spec,
    user_channel,
)

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs/reference/security.md"
COLUMNS = ("no token", "viewer", "another user", "owner", "operator", "agent", "another agent")
CALLERS = {
    "none": "no token",
    "garbage": "no token",
    "of another cluster": "no token",
    "expired": "no token",
    "revoked": "no token",
    "viewer": "viewer",
    "another user": "another user",
    "owner": "owner",
    "operator": "operator",
    "agent": "agent",
    "another agent": "another agent",
}
"""Kinds of callers, each with its column."""
REFUSED = {
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.UNAVAILABLE,  # There was no handshake.
    grpc.StatusCode.UNIMPLEMENTED,  # The port does not serve it.
}
CROSSED = "Internal error from Core"
"""Details of a call whose own write met its end, which `grpc.aio` then does not tell."""
HERE, ELSEWHERE = InstanceId("i-1"), InstanceId("i-2")
WITH_PROOF = {"join token", "AWS identity"}


def protocol() -> dict[str, tuple[ServiceDescriptor, MethodDescriptor]]:
    """Every method of the services that generated code of this repository defines."""
    found = {}
    for top in map(ROOT.joinpath, PRODUCT):
        for file in sorted(top.rglob("_proto/*_pb2.py")):
            within = ROOT / "iterator_sdk" if "iterator_sdk" in top.parts else ROOT
            name = ".".join(file.relative_to(within).with_suffix("").parts)
            for service in importlib.import_module(name).DESCRIPTOR.services_by_name.values():
                for method in service.methods:
                    found[f"{service.name}.{method.name}"] = service, method
    return found


def table() -> dict[str, dict[str, str]]:
    """The cells of the page, by method and column."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    first = lines.index(next(it for it in lines if it.startswith("| method |")))
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[first:]]
    assert tuple(rows[0][1:]) == COLUMNS
    found = {}
    for cells in rows[2:]:
        if len(cells) != len(rows[0]):
            break
        found[cells[0].strip("`")] = dict(zip(COLUMNS, cells[1:], strict=True))
    return found


PROTOCOL = protocol()
TABLE = table()


def test_every_method_of_the_protocol_is_on_the_page_and_no_other() -> None:
    assert set(TABLE) == set(PROTOCOL)
    assert {cell for row in TABLE.values() for cell in row.values()} == {"", "yes", *WITH_PROOF}


@dataclass
class World:
    """A master with a job of ana's and two instances."""

    master: RpcMaster
    job: JobId
    key: bytes
    """The private key of the agent."""
    agents: dict[str, grpc.aio.Channel]
    ticket: Ticket
    """An attachment that waits for the agent."""

    def channel(self, caller: str, port: int) -> grpc.aio.Channel:
        """A channel of a caller to a port."""
        if caller in self.agents and port == self.master.ports.workers:
            return self.agents[caller]
        if caller in self.agents:
            key, certificate = authority().agent(HERE)
            channel = dial(
                f"127.0.0.1:{port}",
                authorities=self.master.authorities,
                key=key,
                certificate=certificate,
            )
        elif caller == "none":
            channel = dial(f"127.0.0.1:{port}", authorities=self.master.authorities)
        else:
            secret = self._secret(caller)
            channel = user_channel(f"127.0.0.1:{port}", self.master.authorities, secret)
        self.master.channels.append(channel)
        return channel

    def _secret(self, caller: str) -> str:
        tokens = self.master.tokens
        match caller:
            case "garbage":
                return "garbage"
            case "of another cluster":
                return "eva_0123456789abcdef_" + "A" * 43
            case "expired":
                return tokens.create("oscar", Role.OPERATOR, -1)[1]
            case "revoked":
                token, secret = tokens.create("oscar", Role.OPERATOR)
                tokens.revoke(token.id)
                return secret
            case "viewer":
                return tokens.create("vic", Role.VIEWER)[1]
            case "another user":
                return tokens.create("ben", Role.USER)[1]
            case "owner":
                return tokens.create("ana", Role.USER)[1]
        assert caller == "operator"
        return tokens.create("oscar", Role.OPERATOR)[1]

    def request(self, method: MethodDescriptor) -> Any:
        """A request about ana's job, or about the first instance."""
        message = GetMessageClass(method.input_type)()
        fields = method.input_type.fields_by_name
        if "job" in fields:
            message.job = self.job
        if "command_id" in fields:
            message.command_id = f"c-{method.name}"
        if "files" in fields:
            message.files.add().file.path = "outputs/model.pt"
        if method.input_type is wpb.RenewRequest.DESCRIPTOR:
            message.signing_request = signing_request(self.key)
        if method.input_type is attach_pb2.Input.DESCRIPTOR:
            message.open.CopyFrom(attach_pb2.Open(job=self.job, task=0))
            message.open.kind.exec.command.append("true")
        if method.input_type is attach_pb2.Output.DESCRIPTOR:
            message.claim = self.ticket.id
        if method.input_type is wpb.WorkerMessage.DESCRIPTOR:
            capacity = wpb.Resources(milli_cpus=2000, memory_mib=4096)
            message.register.CopyFrom(wpb.Register(instance_id=HERE, capacity=capacity))
        return message

    async def tried(self, caller: str, name: str) -> grpc.StatusCode:
        """Status that a caller gets from a method; OK once a stream begins to answer."""
        service, method = PROTOCOL[name]
        ports = self.master.ports
        port = ports.workers if service.name == "Workers" else ports.users
        kinds = ("stream" if it else "unary" for it in streaming(method))
        make = getattr(self.channel(caller, port), "_".join(kinds))
        path = f"/{service.full_name}/{method.name}"
        sent = self.request(method).SerializeToString()
        call = make(path)(iter([sent]) if method.client_streaming else sent, timeout=DEADLINE_S)
        try:
            await (call.read() if method.server_streaming else call)
        except grpc.aio.AioRpcError as error:
            if error.details() == CROSSED:
                return await self.tried(caller, name)
            return error.code()
        call.cancel()
        return grpc.StatusCode.OK


def streaming(method: MethodDescriptor) -> tuple[bool, bool]:
    return method.client_streaming, method.server_streaming


def signing_request(key: bytes) -> bytes:
    """A request for another certificate, with the key of the present one."""
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    signed = builder.sign(load_pem_private_key(key, None), hashes.SHA256())  # type: ignore[arg-type]
    return signed.public_bytes(Encoding.PEM)


def expected(master: RpcMaster) -> Ticket:
    """An attachment that waits for the agent's call, which ends at once."""
    ticket = Ticket("x" * 43, HERE)
    ticket.over.set()
    master.sessions.attachments._tickets[ticket.id] = ticket
    return ticket


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    nobody = Sts("us-east-1", "http://127.0.0.1:1")
    prover = IdentityProver("test", "digest", sts=nobody, entries=(), wall=SystemClock().now)
    async with rpc_master(tmp_path, prover=prover) as master:
        job = await master.loop.change(lambda state: add_job(state, spec("resnet", owner="ana")))
        for instance in (HERE, ELSEWHERE):
            await master.loop.change(lambda state, it=instance: add_instance(state, it))
        agents, keys = {}, {}
        for caller, instance in (("agent", HERE), ("another agent", ELSEWHERE)):
            key, certificate = authority().agent(instance)
            agents[caller], keys[caller] = (
                dial(
                    f"127.0.0.1:{master.ports.workers}",
                    authorities=master.authorities,
                    key=key,
                    certificate=certificate,
                ),
                key,
            )
        master.channels += agents.values()
        yield World(master, job, keys["agent"], agents, expected(master))


@pytest.mark.parametrize("caller", CALLERS)
async def test_each_caller_gets_through_where_the_page_says_and_nowhere_else(
    world: World, caller: str
) -> None:
    met = {name: await world.tried(caller, name) for name in PROTOCOL}
    cells = {name: TABLE[name][CALLERS[caller]] for name in PROTOCOL}
    proofs = {name for name, cell in cells.items() if cell in WITH_PROOF}
    assert all(met[name] is not grpc.StatusCode.OK for name in proofs)
    through = {name for name, status in met.items() if status not in REFUSED} - proofs
    assert through == {name for name, cell in cells.items() if cell == "yes"}
    assert grpc.StatusCode.INTERNAL not in met.values()


async def test_a_join_token_lets_a_caller_join_that_has_nothing_else(world: World) -> None:
    master = world.master
    request = wpb.JoinRequest(
        instance_id=HERE,
        token=master.join_tokens.token(HERE, 1),
        signing_request=signing_request(world.key),
    )
    identity = await EnrolmentStub(world.channel("none", master.ports.users)).Join(request)
    assert identity.certificate
