"""Stores digests of users' tokens in the journal's database, and checks tokens in memory."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Connection, Engine, Row, insert, select, update

from eva_master.adapters.store import rows
from eva_master.adapters.store.journal import translated, typed
from eva_master.adapters.store.tables import USER_TOKENS
from eva_master.ports import Clock
from eva_wire.values.errors import InvalidConfig, NotAuthenticated, NotFound
from eva_wire.values.ids import Millis
from eva_wire.values.users import Role, UserToken, is_owner

_PREFIX = "eva"
_SECRET_BYTES = 32
# Compared with when there is no such token, so that the answer takes as long.
_NO_DIGEST = hashlib.sha256(b"").hexdigest()


class UserTokens:
    """Makes, lists, revokes and checks tokens; any thread may do so.

    A secret is ``eva_ID_RANDOM``, 256 random bits. Their SHA-256 needs no salt and no stretching:
    nobody can guess them. Only the master that holds the journal changes the table, so the copy in
    memory is never stale, and a check costs one hash.

    Args:
        engine: The journal's database.
        clock: The time at which tokens are made, revoked and expire.

    Raises:
        StorageError: The database cannot be read.
    """

    def __init__(self, engine: Engine, clock: Clock) -> None:
        self._engine = engine
        self._clock = clock
        self._writing = threading.Lock()
        with self._transaction() as connection:
            stored = rows.intact(USER_TOKENS, connection.execute(select(USER_TOKENS)).all())
        with typed():
            self._tokens = {row.id: _token(row) for row in stored}

    def now(self) -> Millis:
        """The present time by the clock that tokens are dated by."""
        return self._clock.now()

    def create(
        self, owner: str, role: Role, lifetime_ms: int | None = None
    ) -> tuple[UserToken, str]:
        """Make a token.

        Args:
            owner: The owner of the jobs that are submitted with it.
            role: Role that the token grants.
            lifetime_ms: How long it is valid from now, `None` for no end.

        Returns:
            The token and its secret, which is kept nowhere.

        Raises:
            InvalidConfig: The owner is not a valid name.
            StorageError: The database refused; there is no new token.
        """
        if not is_owner(owner):
            raise InvalidConfig(
                f"{owner!r} cannot be an owner",
                hint="use at most 63 letters, digits, '.', '_', '@', '-'",
            )
        now = self.now()
        with self._writing:
            key = self._unused_id()
            secret = f"{_PREFIX}_{key}_{secrets.token_hex(_SECRET_BYTES)}"
            expires = None if lifetime_ms is None else Millis(now + lifetime_ms)
            token = UserToken(key, owner, role, _digest(secret), now, expires)
            with self._transaction() as connection:
                connection.execute(insert(USER_TOKENS), _row(token))
            self._tokens[key] = token
        return token, secret

    def revoke(self, key: str) -> UserToken:
        """Revoke a token at once and for ever; a token that is revoked already stays so.

        Raises:
            NotFound: There is no such token.
            StorageError: The database refused; the token is still valid.
        """
        with self._writing:
            token = self._tokens.get(key)
            if token is None:
                raise NotFound(f"there is no token {key!r}", hint="`eva token ls` shows all tokens")
            if token.revoked_ms is None:
                token = replace(token, revoked_ms=self._clock.now())
                with self._transaction() as connection:
                    this = update(USER_TOKENS).where(USER_TOKENS.c.id == key)
                    connection.execute(this.values(**_row(token)))
                self._tokens[key] = token
        return token

    def all(self) -> tuple[UserToken, ...]:
        """Every token ever made, oldest first."""
        with self._writing:
            tokens = list(self._tokens.values())
        return tuple(sorted(tokens, key=lambda token: (token.created_ms, token.id)))

    def authenticate(self, secret: str) -> UserToken:
        """The token of a secret.

        Raises:
            NotAuthenticated: There is none, or it has expired or was revoked.
        """
        _, _, rest = secret.partition("_")
        token = self._tokens.get(rest.partition("_")[0])
        digest = _NO_DIGEST if token is None else token.digest
        right = hmac.compare_digest(_digest(secret), digest)
        if token is None or not right:
            raise NotAuthenticated(
                "the master does not know this token",
                hint="see that it is complete and of this cluster, or ask an operator for one",
            )
        self.check(token.id)
        return token

    def check(self, key: str) -> None:
        """Check that a token that was authenticated is still valid.

        Raises:
            NotAuthenticated: The token has expired or was revoked.
        """
        token = self._tokens[key]
        if token.revoked_ms is not None:
            raise NotAuthenticated(
                f"token {key} of {token.owner} was revoked", hint="ask an operator for a new one"
            )
        if token.expires_ms is not None and token.expires_ms <= self._clock.now():
            raise NotAuthenticated(
                f"token {key} of {token.owner} has expired", hint="ask an operator for a new one"
            )

    def _unused_id(self) -> str:
        while (key := secrets.token_hex(4)) in self._tokens:
            pass
        return key

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with translated(self._engine.url), self._engine.begin() as connection:
            yield connection


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _row(token: UserToken) -> rows.Values:
    (row,) = rows.sealed(USER_TOKENS, [asdict(token)])
    return row


def _token(row: Row[Any]) -> UserToken:
    return UserToken(
        row.id,
        row.owner,
        Role(row.role),
        row.digest,
        row.created_ms,
        row.expires_ms,
        row.revoked_ms,
    )
