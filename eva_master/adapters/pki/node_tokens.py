"""Stores the tokens with which owned nodes join, and which key each was used for."""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from sqlalchemy import Connection, Engine, delete, insert, select, update

from eva_master.adapters.store import rows
from eva_master.adapters.store.journal import translated
from eva_master.adapters.store.tables import NODE_TOKENS
from eva_master.ports import Clock
from eva_wire.values.errors import NotAuthorised
from eva_wire.values.ids import InstanceId, Millis

_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class NodeToken:
    """The token of one node; a newer one takes its place.

    Attributes:
        digest: SHA-256 of its secret in hex: 256 random bits need no salt.
        expires_ms: Until when a machine may join with it.
        public_key: SHA-256 in hex of the key of the machine that has joined; `None` before.
    """

    node: InstanceId
    digest: str
    expires_ms: Millis
    public_key: str | None = None


class NodeTokens:
    """Makes and redeems tokens of nodes, and knows the machines that joined. Any thread may use it.

    Only the master that holds the journal changes the table, so the copy in memory is never stale.

    Args:
        engine: The journal's database.
        clock: The time at which tokens are made, used and expire.

    Raises:
        StorageError: The database cannot be read.
    """

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._writing = threading.Lock()
        with self._transaction() as connection:
            stored = rows.intact(NODE_TOKENS, connection.execute(select(NODE_TOKENS)).all())
        self._tokens = {
            InstanceId(row.node): NodeToken(
                InstanceId(row.node), row.digest, Millis(row.expires_ms), row.public_key
            )
            for row in stored
        }
        # Strangers ask by secrets: neither their number nor that of the nodes makes it slow.
        self._node_of = {token.digest: node for node, token in self._tokens.items()}

    def create(self, node: InstanceId, lifetime_ms: int) -> tuple[NodeToken, str]:
        """Make a token; no earlier one of the node is of use any more, nor a machine's identity.

        Returns:
            The token, and its secret, which is kept nowhere.
        """
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        expires_ms = Millis(self._clock.now() + lifetime_ms)
        token = NodeToken(node, _digest(secret.encode()), expires_ms)
        with self._writing, self._transaction() as connection:
            connection.execute(delete(NODE_TOKENS).where(NODE_TOKENS.c.node == node))
            connection.execute(insert(NODE_TOKENS), _row(token))
            self._drop(node)
            self._tokens[node] = token
            self._node_of[token.digest] = node
        return token, secret

    def forget(self, node: InstanceId) -> None:
        """Let no machine be this node until there is a new token; no error if there is none."""
        with self._writing, self._transaction() as connection:
            connection.execute(delete(NODE_TOKENS).where(NODE_TOKENS.c.node == node))
            self._drop(node)

    def _drop(self, node: InstanceId) -> None:
        token = self._tokens.pop(node, None)
        if token is not None:
            del self._node_of[token.digest]

    def node_of(self, secret: str) -> InstanceId:
        """The node that a token is for.

        Raises:
            NotAuthorised: There is no such token, or no longer.
        """
        node = self._node_of.get(_digest(secret.encode()))
        if node is None:
            raise NotAuthorised(
                "this token is not that of an owned node, or a newer one has taken its place",
                hint="an operator makes a token with: eva node token NAME",
            )
        return node

    def redeem(self, secret: str, public_key: bytes) -> InstanceId:
        """Use a token for a machine's key, perhaps again after a lost answer.

        Args:
            secret: The token's.
            public_key: The key, in DER.

        Raises:
            NotAuthorised: The message says why, and what to do.
        """
        key, now = _digest(public_key), self._clock.now()
        with self._writing, self._transaction() as connection:
            node = self.node_of(secret)
            token = self._tokens[node]
            if token.public_key not in (None, key):
                raise NotAuthorised(
                    f"a machine has joined as {node} with this token already",
                    hint=f"each machine is a node of its own: declare another one under `nodes:` in"
                    f" the master's settings. If this machine takes the place of the first: eva"
                    f" node remove {node}, then eva node token {node}",
                )
            if token.expires_ms <= now:
                raise NotAuthorised(
                    f"the token of {node} has expired",
                    hint=f"an operator makes a new one: eva node token {node}",
                )
            if token.public_key is None:
                this = update(NODE_TOKENS).where(NODE_TOKENS.c.node == node)
                used = replace(token, public_key=key)
                connection.execute(this.values(**_row(used, now)))
                self._tokens[node] = used
        return node

    def joined(self, node: InstanceId) -> bool:
        """Whether a machine has joined as this node."""
        token = self._tokens.get(node)
        return token is not None and token.public_key is not None

    def require_machine(self, node: InstanceId, public_key: bytes) -> None:
        """Check that a key, in DER, is that of the machine that joined as a node.

        Raises:
            NotAuthorised: The key is another machine's.
        """
        token = self._tokens.get(node)
        if token is None or token.public_key != _digest(public_key):
            raise NotAuthorised(
                f"this machine is not {node} any more: it was removed, or another one took its"
                " place",
                hint=f"to have it back: eva node token {node}, and start the worker with that token"
                " and an empty state directory",
            )

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with translated(self._engine.url), self._engine.begin() as connection:
            yield connection


def _row(token: NodeToken, used_ms: Millis | None = None) -> rows.Values:
    row = {
        "node": token.node,
        "digest": token.digest,
        "expires_ms": token.expires_ms,
        "public_key": token.public_key,
        "used_ms": used_ms,
    }
    (whole,) = rows.sealed(NODE_TOKENS, [row])
    return whole


def _digest(secret: bytes) -> str:
    return hashlib.sha256(secret).hexdigest()
