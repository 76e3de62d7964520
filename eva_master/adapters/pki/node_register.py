"""The owned nodes at the master's doors: who may join as which, and who is one."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass

from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from eva_master.adapters.pki.node_tokens import NodeTokens
from eva_master.model.fleet.nodes import OwnedNode
from eva_master.model.resources import Resources
from eva_wire.values.errors import InvalidRequest, NotAuthorised, NotFound
from eva_wire.values.ids import InstanceId

PREFIX = "eva-node."
"""Prefix of invitations."""


@dataclass(frozen=True, slots=True)
class Doors:
    """Where nodes find a master.

    Attributes:
        enrol: ``HOST:PORT`` where they join.
        workers: ``HOST:PORT`` where their agents dial.
        authorities: PEM certificates of those who may vouch for the master.
    """

    enrol: str = ""
    workers: str = ""
    authorities: str = ""


class NodeRegister:
    """Lets machines join as declared nodes.

    Args:
        declared: The nodes of the settings, by name.
        tokens: Their tokens; `None` where there are no nodes.

    Attributes:
        doors: Where nodes find this master; to be set before the first call.
    """

    def __init__(self, declared: Mapping[InstanceId, OwnedNode], tokens: NodeTokens | None) -> None:
        self.declared = declared
        self.doors = Doors()
        self._tokens = tokens

    @property
    def tokens(self) -> NodeTokens:
        """The tokens of the nodes.

        Raises:
            NotFound: There are no nodes.
        """
        if self._tokens is None:
            raise NotFound("this cluster has no owned nodes", hint=_DECLARE)
        return self._tokens

    def node(self, name: str) -> OwnedNode:
        """A declared node; raises `NotFound`."""
        node = self.declared.get(InstanceId(name))
        if node is None:
            raise NotFound(f"there is no owned node {name[:80]!r}", hint=_DECLARE)
        return node

    def invitation(self, name: InstanceId, secret: str) -> str:
        """All that a machine needs to join as a node, in one word."""
        document = {
            "node": name,
            "enrol": self.doors.enrol,
            "authorities": self.doors.authorities,
            "secret": secret,
        }
        return PREFIX + base64.urlsafe_b64encode(json.dumps(document).encode()).decode()

    def joined(self, name: InstanceId) -> bool:
        """Whether a machine has joined as a node."""
        return self._tokens is not None and self._tokens.joined(name)

    def fence_ms(self, name: InstanceId) -> int:
        """How long the lease of an instance lasts; 0 for one that is no owned node."""
        node = self.declared.get(name)
        return 0 if node is None else node.fence_ms

    def require_machine(self, name: InstanceId, key: object) -> None:
        """Check that whoever has a node's certificate is the machine that has joined as it.

        Nothing is checked of instances that never were nodes.

        Args:
            name: The name in the certificate.
            key: The public key that it was issued for.

        Raises:
            NotAuthorised: The node was removed, another machine has taken its place, or the
                settings no longer have it.
        """
        if name not in self.declared and self.joined(name):
            raise NotAuthorised(
                f"{name} is no node of this cluster any more: the settings do not name it",
                hint=f"stop the worker there, or {_DECLARE}; it then goes on as {name}",
            )
        if name in self.declared:
            der = key.public_bytes(  # type: ignore[attr-defined]
                Encoding.DER, PublicFormat.SubjectPublicKeyInfo
            )
            self.tokens.require_machine(name, der)

    def invited(self, secret: str) -> InstanceId:
        """The node that a token is for, from memory alone, in microseconds.

        Raises:
            NotAuthorised: There is no such token, or no longer.
            NotFound: There are no nodes.
        """
        return self.tokens.node_of(secret)

    def join(self, secret: str, type_: str, measured: Resources, public_key: bytes) -> OwnedNode:
        """Have a machine join as the node that its token is for.

        Args:
            secret: The token's.
            type_: The type that the machine is said to be.
            measured: Measured size of the machine.
            public_key: Its key, in DER.

        Raises:
            NotAuthorised: The token is of no use to this machine.
            InvalidRequest: The machine is not what is stated. The token can be used again.
        """
        name = self.invited(secret)
        node = self.declared.get(name)
        if node is None:
            raise NotAuthorised(f"{name} is declared no more", hint=_DECLARE)
        stated = node.offering.type
        if type_ != stated.name:
            raise InvalidRequest(
                f"{name} is of type {stated.name}, not {type_[:80]!r}",
                hint=f"start the worker with --type {stated.name}, or correct nodes.{name}.type in"
                " the master's settings",
            )
        if not stated.capacity.fits(measured):
            short = stated.capacity.shortfall(measured)
            raise InvalidRequest(
                f"{name} is stated with {stated.capacity}, and this machine has {measured}: it"
                f" lacks {short}",
                hint=f"correct nodes.{name}.capacity in the master's settings and restart the"
                " master, or join with another machine; the token can be used again",
            )
        self.tokens.redeem(secret, public_key)
        return node


_DECLARE = "declare it under `nodes:` in the master's settings, and restart the master"
