"""Stores in the journal's database which join tokens were issued and used."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Engine, Table, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite

from eva_master.adapters.store import rows
from eva_master.adapters.store.tables import JOIN_TOKENS
from eva_wire.values.ids import InstanceId, Millis

_INSERTS: dict[str, Callable[[Table], Any]] = {
    "sqlite": sqlite.insert,
    "postgresql": postgresql.insert,
}
_KEPT_MS = 7 * 86_400_000
"""So long after its end a token is still known for what it was."""


@dataclass(frozen=True, slots=True)
class TokenRecord:
    """One token.

    Attributes:
        expires_ms: When it expires.
        public_key: SHA-256 in hex of the key that it was used for, `None` before.
    """

    expires_ms: Millis
    public_key: str | None


class JoinTokenTable:
    """The table of join tokens; any thread may use it.

    Each transaction begins with a write, so that it waits for other writers rather than fail.
    Every method raises `StorageError` if the database refuses.

    Args:
        engine: See `eva_master.adapters.store.SqlJournal.engine`.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def issue(self, instance: InstanceId, attempt: int, expires_ms: Millis, now: Millis) -> None:
        """Store a token before it is handed out; a token that is stored already is not changed."""
        row: rows.Values = {
            "instance_id": instance,
            "attempt": attempt,
            "expires_ms": expires_ms,
            "public_key": None,
            "used_ms": None,
        }
        with self._transaction() as connection:
            connection.execute(delete(JOIN_TOKENS).where(JOIN_TOKENS.c.expires_ms < now - _KEPT_MS))
            insert = _INSERTS[self._engine.dialect.name](JOIN_TOKENS)
            connection.execute(insert.on_conflict_do_nothing(), rows.sealed(JOIN_TOKENS, [row]))

    def claim(
        self, instance: InstanceId, attempt: int, public_key: str, now: Millis
    ) -> TokenRecord | None:
        """Use a token for a key, unless it has expired or was used before.

        Returns:
            The record that holds when this returns, `None` for a token that was never issued.
        """
        table = JOIN_TOKENS.c
        this = (table.instance_id == instance) & (table.attempt == attempt)
        with self._transaction() as connection:
            # The write comes first; what it changes is no part of what is looked at then.
            used = connection.execute(
                update(JOIN_TOKENS)
                .where(this, table.expires_ms > now, table.public_key.is_(None))
                .values(public_key=public_key, used_ms=now)
            ).rowcount
            row = connection.execute(select(JOIN_TOKENS).where(this)).one_or_none()
            if row is not None:
                now_used = dict(row._mapping)
                before = {**now_used, "public_key": None, "used_ms": None} if used else now_used
                rows.intact(JOIN_TOKENS, [tuple(before.values())])
                if used:
                    (whole,) = rows.sealed(JOIN_TOKENS, [now_used])
                    sealing = update(JOIN_TOKENS).where(this)
                    connection.execute(sealing.values(checksum=whole["checksum"]))
        return None if row is None else TokenRecord(Millis(row.expires_ms), row.public_key)

    def _transaction(self) -> AbstractContextManager[Connection]:
        return rows.transaction(self._engine, "join tokens")
