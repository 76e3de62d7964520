"""Secrets of users and tenants: what is stored is sealed, and values leave with orders alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import structlog
from sqlalchemy import ColumnElement, Connection, Engine, delete, insert, select

from eva_master.adapters.secrets.key import FILE, SecretKey
from eva_master.adapters.store import rows
from eva_master.adapters.store.journal import translated, typed
from eva_master.adapters.store.tables import SECRETS
from eva_master.model.secrets import Holder, HolderKind, NeededSecrets, SecretName
from eva_master.ports import Clock
from eva_wire.jobfile.scalars import check_variable
from eva_wire.values.bounds import MOST_SECRET_BYTES
from eva_wire.values.errors import InvalidSecret, LimitExceeded, NotFound, UnreadableSecret
from eva_wire.values.ids import Millis

_SEALED_KEPT = 64
"""Sealed values in memory at most."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class SecretRecord:
    """All that is told of a secret.

    Attributes:
        version: From 1; grows with every new value.
        set_ms: When this version was set.
        set_by: The user who set it.
        size: Bytes of its value.
        unreadable: Whether the cluster's key is not the one that it was sealed with.
    """

    holder: Holder
    name: str
    version: int
    set_ms: Millis
    set_by: str
    size: int
    unreadable: bool = False

    @property
    def key(self) -> SecretName:
        """Holder and name, which no other secret shares."""
        return self.holder, self.name


class SecretVault:
    """Sets, lists, removes and opens secrets; any thread may do so.

    Only the master that holds the journal changes the table, so the records in memory are never
    stale. Values are in memory while they are sealed or handed over.

    Args:
        engine: The journal's database.
        key: The cluster's key.
        clock: The time at which secrets are set.
        most: How many secrets a user or tenant may have.
        most_bytes: How many bytes the values of one user or tenant may have together.

    Raises:
        StorageError: The database cannot be read.
    """

    def __init__(
        self, engine: Engine, key: SecretKey, clock: Clock, *, most: int, most_bytes: int
    ) -> None:
        self._engine = engine
        self._key = key
        self._clock = clock
        self._most, self._most_bytes = most, most_bytes
        self._changing = threading.RLock()
        self._sealed: dict[SecretName, bytes] = {}
        """Sealed values that were read last, since many tasks begin together."""
        with self._transaction() as connection:
            stored = rows.intact(SECRETS, connection.execute(select(SECRETS)).all())
        with typed():
            records = [
                SecretRecord(
                    Holder(HolderKind(row.kind), row.holder),
                    row.name,
                    row.version,
                    Millis(row.set_ms),
                    row.set_by,
                    row.size,
                    unreadable=row.key_id != key.id,
                )
                for row in stored
            ]
        self._records: dict[SecretName, SecretRecord] = {record.key: record for record in records}
        if unreadable := [record for record in records if record.unreadable]:
            log.error(
                "SECRETS CANNOT BE READ",
                secrets=len(unreadable),
                reason=f"they were sealed with another key than pki/{FILE}",
                hint="restore the file from the backup of the journal; or have them set again",
            )

    def now(self) -> Millis:
        """The present time by the clock that secrets are dated by."""
        return self._clock.now()

    def set(self, secret: SecretName, value: bytes, *, by: str) -> tuple[SecretRecord, bool]:
        """Set a secret; the value that it has already makes no new version.

        Returns:
            Its record, and whether it has changed.

        Raises:
            InvalidSecret: The name cannot be a variable's, or the value cannot be one.
            LimitExceeded: The holder has too many secrets.
            StorageError: The database refused; the secret is as it was.
        """
        holder, name = secret
        check_name(name)
        _check(name, value)
        with self._changing:
            before = self._records.get(secret)
            if before is not None and self._is(before, value):
                return before, False
            self._require_room(holder, name, len(value))
            version = 1 if before is None else before.version + 1
            record = SecretRecord(holder, name, version, self.now(), by, len(value))
            (row,) = rows.sealed(
                SECRETS,
                [
                    {
                        "kind": holder.kind.value,
                        "holder": holder.name,
                        "name": name,
                        "version": version,
                        "set_ms": record.set_ms,
                        "set_by": by,
                        "size": len(value),
                        "key_id": self._key.id,
                        "sealed": self._key.seal(value, secret, version),
                    }
                ],
            )
            with self._transaction() as connection:
                connection.execute(delete(SECRETS).where(*_is_row(secret)))
                connection.execute(insert(SECRETS), row)
            self._records[secret] = record
            self._sealed.clear()
        return record, True

    def remove(self, secret: SecretName) -> SecretRecord:
        """Remove a secret.

        Raises:
            NotFound: There is no such secret.
            StorageError: The database refused; the secret is still there.
        """
        holder, name = secret
        with self._changing:
            record = self._records.get(secret)
            if record is None:
                whose = f"tenant {holder.name} has" if _of_tenant(holder) else "you have"
                raise NotFound(f"{whose} no secret {name[:80]!r}", hint="see: eva secret ls")
            with self._transaction() as connection:
                connection.execute(delete(SECRETS).where(*_is_row(secret)))
            del self._records[secret]
            self._sealed.clear()
        return record

    def of(self, *holders: Holder) -> list[SecretRecord]:
        """The secrets of some holders, by name; of equal names a user's before a tenant's."""
        with self._changing:
            records = [record for record in self._records.values() if record.holder in holders]
        return sorted(records, key=lambda record: (record.name, _of_tenant(record.holder)))

    def names(self) -> frozenset[SecretName]:
        """The secrets that are set and can be read."""
        with self._changing:
            return frozenset(key for key, record in self._records.items() if not record.unreadable)

    def missing(self, needs: NeededSecrets) -> tuple[str, ...]:
        """Names of needed secrets that are not set, or cannot be read."""
        return tuple(name for name in needs.names if self._found(needs, name) is None)

    def values(self, needs: NeededSecrets) -> Mapping[str, str]:
        """The values of secrets, for an order to start.

        Raises:
            UnreadableSecret: One is not set, or cannot be read.
            StorageError: The database cannot be read.
        """
        with self._changing:
            return {name: self._value(needs, name) for name in needs.names}

    def _value(self, needs: NeededSecrets, name: str) -> str:
        record = self._found(needs, name)
        if record is None:
            raise UnreadableSecret(
                f"the secret {name} is not set for {needs.owner}, nor for tenant {needs.tenant}",
                hint=f"eva secret set {name}",
            )
        try:
            return self._opened(record).decode()
        except UnreadableSecret:
            self._records[record.key] = replace(record, unreadable=True)
            raise

    def _found(self, needs: NeededSecrets, name: str) -> SecretRecord | None:
        records = map(self._records.get, needs.of(name))
        return next((record for record in records if record and not record.unreadable), None)

    def _opened(self, record: SecretRecord) -> bytes:
        if (sealed := self._sealed.get(record.key)) is None:
            query = select(SECRETS.c.sealed).where(*_is_row(record.key))
            with self._transaction() as connection:
                sealed = connection.execute(query).scalar() or b""
            if len(self._sealed) >= _SEALED_KEPT:
                self._sealed.clear()
            self._sealed[record.key] = sealed
        return self._key.open(sealed, record.key, record.version)

    def _is(self, record: SecretRecord, value: bytes) -> bool:
        """Whether a secret has a value."""
        if record.unreadable or record.size != len(value):
            return False
        try:
            return self._opened(record) == value
        except UnreadableSecret:
            return False

    def _require_room(self, holder: Holder, name: str, size: int) -> None:
        others = [
            record
            for record in self._records.values()
            if record.holder == holder and record.name != name
        ]
        whose = f"tenant {holder.name}" if _of_tenant(holder) else "you"
        hint = "remove some (`eva secret rm`), or have an operator raise the limit"
        if len(others) >= self._most:
            raise LimitExceeded(
                f"{whose} would have {len(others) + 1:,} secrets, and {self._most:,} are allowed"
                " (limits.secrets_per_user)",
                hint=hint,
            )
        total = size + sum(record.size for record in others)
        if total > self._most_bytes:
            raise LimitExceeded(
                f"the secrets of {whose} would have {total:,} bytes together, and"
                f" {self._most_bytes:,} are allowed (limits.secret_bytes_per_user)",
                hint=hint,
            )

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with translated(self._engine.url), self._engine.begin() as connection:
            yield connection


def check_name(name: str) -> None:
    """Check the name of a secret; raises `InvalidSecret`."""
    try:
        check_variable(name)
    except ValueError as refusal:
        context = getattr(refusal, "context", None) or {}
        raise InvalidSecret(str(refusal), hint=context.get("hint", "")) from None


def _check(name: str, value: bytes) -> None:
    if not value:
        raise InvalidSecret(f"the value of {name} is empty", hint="give it on standard input")
    if len(value) > MOST_SECRET_BYTES:
        raise InvalidSecret(
            f"the value of {name} has {len(value):,} bytes, at most {MOST_SECRET_BYTES:,} are"
            " allowed",
            hint="keep large files in the object store",
        )
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise InvalidSecret(
            f"the value of {name} is no text, which an environment variable has to be",
            hint=f"encode it, and decode it in the task: base64 FILE | eva secret set {name}",
        )


def _of_tenant(holder: Holder) -> bool:
    return holder.kind is HolderKind.TENANT


def _is_row(secret: SecretName) -> tuple[ColumnElement[bool], ...]:
    holder, name = secret
    columns = SECRETS.c
    return (
        columns.kind == holder.kind.value,
        columns.holder == holder.name,
        columns.name == name,
    )
