"""How a machine that nobody launched becomes a node of the cluster, once."""

from __future__ import annotations

import asyncio
import base64
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import grpc
import psutil

from eva_wire._proto import worker_pb2 as pb
from eva_wire._proto.worker_pb2_grpc import EnrolmentStub
from eva_worker.errors import BadIdentity, JoinRefused, NotEnrolled
from eva_worker.files.room import disk_mib
from eva_worker.link.channel import dial, hint_of, reason_of
from eva_worker.link.identity import Identity
from eva_worker.process.durable_files import read_json, write_json

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eva_wire._proto.worker_pb2_grpc import EnrolmentAsyncStub

_PREFIX = "eva-node."
_LONGEST = 65_536
_ANSWER_S = 20.0
_REFUSALS = (
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.PERMISSION_DENIED,
)
"""How a master answers that was reached and will say the same again."""


@dataclass(frozen=True, slots=True)
class Invitation:
    """Contents of a node's token.

    Attributes:
        enrol: ``HOST:PORT`` where the master takes it.
        authorities: PEM certificates that the master is verified with.
    """

    node: str
    enrol: str
    authorities: str
    secret: str = field(repr=False)

    @classmethod
    def read(cls, token: str) -> Invitation:
        """Read a token, or the file that it is in.

        Raises:
            JoinRefused: The text is no token of a node.
        """
        text = token.strip()
        if not text.startswith(_PREFIX):
            try:
                with Path(token).open(encoding="utf-8") as file:
                    text = file.read(_LONGEST).strip()
            except (OSError, ValueError) as error:
                raise JoinRefused(
                    "this is neither the token of a node nor a file with one; an operator makes a"
                    " token with `eva node token NAME`"
                ) from error
        try:
            document = json.loads(base64.urlsafe_b64decode(text.removeprefix(_PREFIX)))
            names = ("node", "enrol", "authorities", "secret")
            parts = [str(document[name]) for name in names]
        except (ValueError, KeyError, TypeError) as error:
            raise JoinRefused(
                "the token of the node is damaged; copy all of it, on one line"
            ) from error
        return cls(*parts)


@dataclass(frozen=True, slots=True)
class Node:
    """This machine's part in the cluster, once it has joined.

    Attributes:
        name: The node's name, which is its instance id.
        workers: ``HOST:PORT`` of the master's port for workers.
        environment: Variables of the worker that the master's settings decide.
    """

    name: str
    type: str
    workers: str
    gpus: int
    milli_cpus: int
    memory_mib: int
    environment: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, state_dir: Path) -> Node | None:
        """The node as which an earlier worker of this directory joined; `None` without one."""
        document: dict[str, Any] | None = read_json(state_dir / "node.json")
        return None if document is None else cls(**document)


def join(token: str, type_: str, state_dir: Path, *, gpus: int) -> Node:
    """Join the cluster, unless this state directory has; what the master says is kept in it.

    Args:
        token: The token or its file; empty for who has joined.
        type_: The type that this machine is.
        state_dir: The worker's.
        gpus: How many GPUs there are.

    Raises:
        JoinRefused: The master, the token or the state directory refuses it; the message says why.
        NotEnrolled: The master is not reached, or its answer is of no use.
    """
    node = Node.load(state_dir)
    if node is not None and Identity(state_dir / "identity", node.name).certificate_file.exists():
        other = _invited(token)
        if other not in ("", node.name):
            raise JoinRefused(
                f"this state directory is that of {node.name}, and the token that of"
                f" {other}: give each node a --state-dir of its own"
            )
        return node
    invitation = Invitation.read(token)
    return asyncio.run(_join(invitation, type_, state_dir, gpus))


def _invited(token: str) -> str:
    """The node that a token is for; empty if it is gone, since it is of use once."""
    try:
        return Invitation.read(token).node if token else ""
    except JoinRefused:
        return ""


async def _join(invitation: Invitation, type_: str, state_dir: Path, gpus: int) -> Node:
    identity = Identity(state_dir / "identity", invitation.node)
    request = pb.JoinNodeRequest(
        token=invitation.secret,
        type=type_,
        measured=pb.Resources(
            gpus=gpus,
            milli_cpus=1000 * (os.cpu_count() or 1),
            memory_mib=psutil.virtual_memory().total >> 20,
            disk_mib=disk_mib(state_dir),
        ),
        signing_request=identity.signing_request(),
    )
    async with dial(invitation.enrol, authorities=invitation.authorities.encode()) as channel:
        stub = cast("EnrolmentAsyncStub", EnrolmentStub(channel))
        try:
            answer = await stub.JoinNode(request, timeout=_ANSWER_S)
        except grpc.aio.AioRpcError as error:
            refused = JoinRefused if error.code() in _REFUSALS else NotEnrolled
            raise refused(
                f"{invitation.node} cannot join the cluster at {invitation.enrol}:"
                f" {reason_of(error)}{hint_of(error)}"
            ) from error
    node = Node(
        answer.name,
        type_,
        answer.workers,
        answer.capacity.gpus,
        answer.capacity.milli_cpus,
        answer.capacity.memory_mib,
        dict(answer.environment),
    )
    # Before the certificate, without which this is done again.
    write_json(state_dir / "node.json", asdict(node))
    try:
        identity.keep(answer.identity.certificate, answer.identity.authorities)
    except BadIdentity as error:
        raise NotEnrolled(f"the master's answer cannot be used: {error}") from error
    return node
