"""Stores digests of users' tokens in the journal's database, and checks tokens in memory."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

from sqlalchemy import Connection, Engine, Row, delete, insert, select, update

from eva_master.adapters.store import rows
from eva_master.adapters.store.journal import translated, typed
from eva_master.adapters.store.tables import USER_TOKENS
from eva_master.ports import Clock
from eva_wire.values.errors import InvalidConfig, LimitExceeded, NotAuthenticated, NotFound
from eva_wire.values.ids import Millis
from eva_wire.values.users import Role, UserToken, is_owner

_PREFIX = "eva"
_SECRET_BYTES = 32
_MOST_TEMPORARY = 1_000
"""Tokens with an end soon that one owner may have in force."""
_ENDED_KEPT_MS = 30 * 86_400_000
"""How long tokens that have one are listed after their end."""
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
        self,
        owner: str,
        role: Role,
        lifetime_ms: int | None = None,
        *,
        identity: str | None = None,
    ) -> tuple[UserToken, str]:
        """Make a token.

        Args:
            owner: The owner of the jobs that are submitted with it.
            role: Role that the token grants.
            lifetime_ms: How long it is valid from now, `None` for no end.
            identity: Identity of the cloud that has proved itself; `None` if an operator makes it.

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
            token = UserToken(key, owner, role, _digest(secret), now, expires, identity=identity)
            with self._transaction() as connection:
                connection.execute(insert(USER_TOKENS), _row(token))
            self._tokens[key] = token
        return token, secret

    def issue_temporary(
        self, owner: str, role: Role, lifetime_ms: int, identity: str
    ) -> tuple[UserToken, str]:
        """Make a token that its owner gets without an operator, and again and again.

        Tokens whose end is long past are forgotten, lest there be ever more.

        Raises:
            LimitExceeded: The owner has too many.
            StorageError: The database refused; there is no new token.
        """
        now = self.now()
        ends = [
            token.expires_ms
            for token in self.all()
            if token.owner == owner and token.revoked_ms is None and token.expires_ms
        ]
        if sum(now < end <= now + lifetime_ms for end in ends) >= _MOST_TEMPORARY:
            raise LimitExceeded(
                f"{owner} has {_MOST_TEMPORARY:,} tokens in force that end soon",
                hint="use one for longer, or revoke some: eva token ls, eva token revoke",
            )
        self._forget(now - _ENDED_KEPT_MS)
        return self.create(owner, role, lifetime_ms, identity=identity)

    def revoke_outdated(self, granted: Callable[[str], tuple[str, Role] | None]) -> list[UserToken]:
        """Revoke the tokens of identities that would get none now, or another one.

        Args:
            granted: By its identity, the owner and the role that a caller would get now.

        Returns:
            The tokens that it has revoked.

        Raises:
            StorageError: The database refused; some may still be valid.
        """
        now = self.now()
        return [
            self.revoke(token.id)
            for token in self.all()
            if token.identity is not None
            and token.revoked_ms is None
            and (token.expires_ms is None or token.expires_ms > now)
            and granted(token.identity) != (token.owner, token.role)
        ]

    def _forget(self, before_ms: int) -> None:
        """Remove the tokens that have expired before some time."""
        with self._writing:
            ids = [
                token.id
                for token in self._tokens.values()
                if token.expires_ms is not None and token.expires_ms < before_ms
            ]
            if not ids:
                return
            with self._transaction() as connection:
                connection.execute(delete(USER_TOKENS).where(USER_TOKENS.c.id.in_(ids)))
            for key in ids:
                del self._tokens[key]

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
        return self.check(token.id)

    def check(self, key: str) -> UserToken:
        """The token of an id, if it is valid now.

        Raises:
            NotAuthenticated: There is none, or it has expired or was revoked.
        """
        token = self._tokens.get(key)
        if token is None:
            raise NotAuthenticated(
                f"there is no token {key!r}", hint="ask an operator for a new one"
            )
        if token.revoked_ms is not None:
            raise NotAuthenticated(
                f"token {key} of {token.owner} was revoked", hint="ask an operator for a new one"
            )
        if token.expires_ms is not None and token.expires_ms <= self._clock.now():
            raise NotAuthenticated(
                f"token {key} of {token.owner} has expired", hint="ask an operator for a new one"
            )
        return token

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
        row.identity,
    )
