"""Enrols instances: they present a token once, and certificates from then on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
import structlog
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID

from eva_master.adapters.loop.gateway import LoopGateway
from eva_master.adapters.pki.authority import Authority, PublicKey, requested_key
from eva_master.adapters.pki.node_register import NodeRegister
from eva_master.adapters.pki.tokens import JoinTokens
from eva_master.adapters.rpc.log_pace import LogPace
from eva_master.adapters.rpc.workers import messages
from eva_master.model.changes import Changes
from eva_wire._proto import worker_pb2 as pb
from eva_wire._proto.worker_pb2_grpc import EnrolmentServicer
from eva_wire.rpc.errors import BadRequest
from eva_wire.values.errors import Busy, EvaError, NotAuthorised
from eva_wire.values.ids import InstanceId, Millis
from eva_wire.values.states import InstanceState

T = TypeVar("T")
Context = grpc.aio.ServicerContext[Any, Any]

_JOINS_AT_ONCE = 2
_LONGEST_NAME = 1_000

log = structlog.get_logger(__name__)


class AgentCertificates:
    """Issues the agents' certificates.

    Args:
        authority: Signs them.
        gateway: Tells which instances exist.
        life_ms: How long a certificate is valid.
        nodes: The owned nodes, and the machines that joined as these; `None` for none.
    """

    def __init__(
        self,
        authority: Authority,
        gateway: LoopGateway,
        life_ms: int,
        nodes: NodeRegister | None = None,
    ) -> None:
        self.nodes = nodes or NodeRegister({}, None)
        self._authority = authority
        self._gateway = gateway
        self._life_ms = life_ms

    async def require_live(self, instance: InstanceId) -> None:
        """Check that an instance exists.

        Raises:
            NotAuthorised: The instance does not exist, or no longer.
        """
        await self._gateway.model()
        if not self.is_live(instance):
            raise no_such(instance)

    def is_live(self, instance: InstanceId) -> bool:
        """Whether an instance exists, once the control loop has published a model."""
        if instance in self.nodes.declared:
            return self.nodes.joined(instance)
        return instance in self._gateway.latest(timeout_s=0).live

    async def require_peer(self, peer: Certified) -> None:
        """Check that the instance of a certificate exists, and of an owned node that it is the one.

        Raises:
            NotAuthorised: The instance does not exist, or no longer.
        """
        self.nodes.require_machine(peer.instance, peer.key)
        await self.require_live(peer.instance)

    def on_gone(self, gone: Callable[[InstanceId], None]) -> None:
        """Have `gone` called, in the control loop's thread, with each instance that ends.

        From before the call on, `is_live` is false for it.
        """

        def observe(changes: Changes) -> None:
            for instance in changes.instances:
                if instance.state is InstanceState.GONE:
                    gone(instance.id)

        self._gateway.observe(observe)

    def left_s(self, peer: Certified) -> float:
        """Seconds until the certificate of a peer expires."""
        return self._authority.left_s(peer.expires_ms)

    def renew(self, peer: Certified, key: PublicKey) -> pb.Identity:
        """Issue the next certificate of a peer, for the key of the present one alone.

        Raises:
            NotAuthorised: The key is another one: whoever only has a certificate for now could
                make it theirs for good.
        """
        if key != peer.key:
            raise NotAuthorised(
                f"the certificate of instance {peer.instance!r} is for another key",
                hint="a certificate is renewed with the key that it was issued for; a new key "
                "needs a new instance",
            )
        return self.issue(peer.instance, key)

    def issue(self, instance: InstanceId, key: PublicKey) -> pb.Identity:
        """Issue a certificate for an instance that has proved its identity."""
        certificate = self._authority.issue_agent(key, instance, self._life_ms)
        return pb.Identity(certificate=certificate, authorities=self._authority.certificates)


class EnrolmentService(EnrolmentServicer):
    """Serves instances that have no certificate yet.

    Args:
        certificates: Issues them.
        tokens: Proofs that this master launched an instance.
        isolation: Isolation of tasks, as variables for ``eva worker``.
    """

    def __init__(
        self,
        certificates: AgentCertificates,
        tokens: JoinTokens,
        isolation: Mapping[str, str] | None = None,
    ) -> None:
        self._isolation = dict(isolation or {})
        self._certificates = certificates
        self._tokens = tokens
        # Threads of its own, so that no user's call is waited for.
        self._threads = ThreadPoolExecutor(_JOINS_AT_ONCE, thread_name_prefix="join")
        self._refusals = LogPace()
        self._joining: set[str] = set()
        """Instances whose valid seal is being looked at in a thread."""

    async def _in_turn(self, instance: str, redeem: Callable[..., T], *arguments: object) -> T:
        """Redeem the token of an instance in a thread, one call of each instance at a time.

        Raises:
            Busy: Another call of the instance is being answered, though its caller may have gone.
        """
        if instance in self._joining:
            raise Busy.until(f"another call of {instance} is being answered", 1.0)
        self._joining.add(instance)
        future = self._threads.submit(redeem, *arguments)
        future.add_done_callback(lambda _: self._joining.discard(instance))
        return await asyncio.wrap_future(future)

    async def Join(self, request: pb.JoinRequest, context: Context) -> pb.Identity:  # noqa: N802
        """Issue a certificate in exchange for a join token, whose seal is checked first."""
        if max(map(len, (request.instance_id, request.token))) > _LONGEST_NAME:
            raise BadRequest("no instance and no join token has so long a name")
        instance = InstanceId(request.instance_id)
        try:
            sealed, _ = self._tokens.launch_of(request.token)
            key = asked_for(request.signing_request)
            der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
            await self._in_turn(sealed, self._tokens.redeem, instance, request.token, der)
            await self._certificates.require_live(instance)
        except NotAuthorised as error:
            self._refusals.warning(
                "join refused", instance=instance, peer=context.peer(), reason=error.message
            )
            raise
        log.info("instance joined", instance=instance, peer=context.peer())
        return self._certificates.issue(instance, key)

    async def JoinNode(  # noqa: N802
        self, request: pb.JoinNodeRequest, context: Context
    ) -> pb.NodeIdentity:
        """Issue a certificate to an owned node for its token, which is checked first."""
        if max(map(len, (request.token, request.type))) > _LONGEST_NAME:
            raise BadRequest("no token and no type has so long a name")
        nodes = self._certificates.nodes
        try:
            invited = nodes.invited(request.token)
            key = asked_for(request.signing_request)
            der = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
            measured = messages.resources(request.measured)
            node = await self._in_turn(
                invited, nodes.join, request.token, request.type, measured, der
            )
        except BadRequest:
            raise
        except EvaError as error:
            self._refusals.warning("node refused", peer=context.peer(), reason=error.message)
            raise
        log.info("node joined", node=node.name, peer=context.peer())
        capacity = node.offering.type.capacity
        return pb.NodeIdentity(
            identity=self._certificates.issue(node.name, key),
            name=node.name,
            capacity=pb.Resources(
                gpus=capacity.gpus,
                milli_cpus=capacity.milli_cpus,
                memory_mib=capacity.memory_mib,
                disk_mib=capacity.disk_mib,
            ),
            workers=nodes.doors.workers,
            environment=self._isolation,
        )


def asked_for(signing_request: bytes) -> PublicKey:
    """The key that a certificate is requested for; raises `BadRequest`."""
    try:
        return requested_key(signing_request)
    except ValueError as error:
        raise BadRequest(str(error)) from error


@dataclass(frozen=True, slots=True)
class Certified:
    """The instance that a peer's certificate names.

    Attributes:
        expires_ms: When the certificate expires.
        key: The key that it was issued for, which the peer has.
    """

    instance: InstanceId
    expires_ms: Millis
    key: object


def certified(auth_context: Mapping[str, Iterable[bytes]]) -> Certified:
    """The instance that the client certificate of a peer names.

    Args:
        auth_context: The call's context. The server has checked the certificate's chain and dates.

    Raises:
        NotAuthorised: There is no certificate, or it is not that of an instance.
    """
    shown = list(auth_context.get("x509_pem_cert", ()))
    if not shown:
        raise NotAuthorised("the connection has no certificate of an instance")
    certificate = x509.load_pem_x509_certificate(shown[0])
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if len(names) != 1:
        raise NotAuthorised("the certificate names no instance")
    expires_ms = Millis(round(certificate.not_valid_after_utc.timestamp() * 1000))
    return Certified(InstanceId(str(names[0].value)), expires_ms, certificate.public_key())


def no_such(instance: InstanceId) -> NotAuthorised:
    """Why an instance that does not exist is refused."""
    return NotAuthorised(
        f"there is no instance {instance!r}, or no longer",
        hint="only instances that this master has launched may join",
    )
