"""Stores the parameters of pending launches in the journal's database."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from sqlalchemy import Connection, Engine, Table, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from eva_master.adapters.store import rows
from eva_master.adapters.store.tables import LAUNCHES
from eva_wire.values.ids import InstanceId

_INSERTS: dict[str, Callable[[Table], Any]] = {
    "sqlite": sqlite.insert,
    "postgresql": postgresql.insert,
}


class LaunchTable:
    """Implements `eva_master.ports.launch_records.LaunchRecords`; any thread may use it.

    Args:
        engine: See `eva_master.adapters.store.SqlJournal.engine`.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def remember(
        self, instance: InstanceId, attempt: int, request: Mapping[str, Any]
    ) -> dict[str, Any]:
        """See `LaunchRecords.remember`."""
        row = {"instance_id": instance, "attempt": attempt, "request": json.dumps(dict(request))}
        with self._transaction() as connection:
            insert = _INSERTS[self._engine.dialect.name](LAUNCHES)
            connection.execute(insert.on_conflict_do_nothing(), rows.sealed(LAUNCHES, [row]))
            written = _read(connection, instance, attempt)
        assert written is not None
        return written

    def remembered(self, instance: InstanceId, attempt: int) -> dict[str, Any] | None:
        """See `LaunchRecords.remembered`."""
        with self._transaction() as connection:
            return _read(connection, instance, attempt)

    def forget(self, instances: Iterable[InstanceId]) -> None:
        """See `LaunchRecords.forget`."""
        with self._transaction() as connection:
            connection.execute(delete(LAUNCHES).where(LAUNCHES.c.instance_id.in_(list(instances))))

    def _transaction(self) -> AbstractContextManager[Connection]:
        return rows.transaction(self._engine, "launches")


def _read(connection: Connection, instance: InstanceId, attempt: int) -> dict[str, Any] | None:
    stored = connection.execute(select(LAUNCHES).where(_this(instance, attempt))).all()
    read = rows.intact(LAUNCHES, stored)
    return dict(json.loads(read[0].request)) if read else None


def _this(instance: InstanceId, attempt: int) -> Any:
    return (LAUNCHES.c.instance_id == instance) & (LAUNCHES.c.attempt == attempt)
