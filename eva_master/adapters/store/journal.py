"""The journal port over SQLAlchemy Core."""

from __future__ import annotations

import errno
import gc
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Self, TypeVar

from sqlalchemy import (
    URL,
    ColumnElement,
    Connection,
    Engine,
    Insert,
    Row,
    Table,
    case,
    create_engine,
    delete,
    event,
    func,
    make_url,
    or_,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from eva_master.adapters.store import codec, rows, tables
from eva_master.adapters.store.lock import ProcessLock
from eva_master.adapters.store.migrate import TOO_NEW_HINT, migrate
from eva_master.adapters.store.untouched import ActiveJobRows
from eva_master.model.changes import Changes, Round
from eva_master.model.planning.plan import Json
from eva_wire.values.errors import JournalTooNew, StorageError, StorageFull
from eva_wire.values.ids import Millis

_BUSY_TIMEOUT_MS = 10_000
"""How long a commit waits for somebody else's lock, such as a backup's; masters are kept apart."""

_ROWS_AT_ONCE = 1_000
_CHECKED_BYTES = 256 << 20
"""SQLite files up to this size are checked for damage when they are opened: at most a second."""
_PRIMARY_CODE = 0xFF
"""Mask of an error code of SQLite without what an extended one adds."""
_LONGEST_CAUSE = 200
"""Characters: some errors quote the record that cannot be read."""
_DAMAGED = (
    *(sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT),
    # Every statement is right for a whole schema, and every row for its constraints.
    *(sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH),
)
"""Codes of SQLite that a whole journal never gives."""
_POSTGRES_DISK_FULL = "53100"
_NOT_OURS = "the user that runs the master needs to write to it and to its directory"
_PROBE_BYTES = 64 << 10

ROUNDS_EXPLAINED = 300
"""Reasons are kept of so many rounds: a day's, if there is one every five minutes."""

FEED_KEPT_MS = 7 * 86_400_000
_FEED_LOOKED_THROUGH = 1_000
"""Events after which old ones are deleted."""

_UPSERTS: dict[str, Callable[[Table], Any]] = {
    "sqlite": sqlite.insert,
    "postgresql": postgresql.insert,
}

_TIMES = (
    tables.JOBS.c.submitted_ms,
    tables.JOBS.c.ended_ms,
    tables.INSTANCES.c.ended_ms,
    tables.INSTANCE_ACCOUNTS.c.until_ms,
    tables.ROUNDS.c.at_ms,
)
"""When something happened, as far as that is a column."""

T = TypeVar("T")


class SqlJournal:
    """Stores everything that must survive a restart of the master, in one database.

    One thread of one master may use it at a time; see `open`.
    """

    def __init__(
        self, engine: Engine, lock: ProcessLock | None, feed_kept_ms: int = FEED_KEPT_MS
    ) -> None:
        self._engine = engine
        self._lock = lock
        self._feed_kept_ms = feed_kept_ms
        self._upserts = {
            table: upsert(table, engine.dialect.name) for table in tables.METADATA.sorted_tables
        }
        self._active = ActiveJobRows()

    @classmethod
    def open(
        cls, url: str, *, expected: bool = False, feed_kept_ms: int = FEED_KEPT_MS
    ) -> SqlJournal:
        """Open a journal, created or migrated to this release's schema as need be.

        Args:
            url: ``sqlite:////var/lib/eva/journal.db``, or ``postgresql+psycopg://...`` where
                that driver is installed.
            expected: Whether a master has written to it before, so that an SQLite file that is
                missing or empty has been lost.
            feed_kept_ms: Time for which events are kept.

        Raises:
            JournalInUse: Another process has this SQLite journal open.
            JournalTooNew: A later release wrote it.
            StorageError: The URL is not understood, the database cannot be reached or written, or
                it is lost or damaged.
        """
        target = _parse(url)
        if (path := _file(target)) is not None and path.is_dir():
            raise StorageError(f"the journal {path} is a directory", hint="name a file")
        lock, engine = _lock(target), None
        try:
            if expected:
                _check_there(target)
            with translated(target), typed():
                engine = _engine(target)
                _check_whole(engine)
                with engine.begin() as connection:
                    migrate(connection)
                    # One that cannot be written is found here, and not by the first commit.
                    connection.exec_driver_sql("DELETE FROM alembic_version WHERE 1 = 0")
                    _check_rows(connection, target)
            return cls(engine, lock, feed_kept_ms)
        except BaseException:
            if engine is not None:
                engine.dispose()  # else its file would stay open, and locked
            if lock is not None:
                lock.release()
            raise

    @property
    def engine(self) -> Engine:
        """The database, for the other tables in it; any thread may use it."""
        return self._engine

    def load(self, since: Millis | None = None) -> Changes:
        """See `eva_master.ports.Journal.load`; records are sorted by id.

        Raises:
            JournalTooNew: A later release wrote one of the records.
            StorageError: The database cannot be read, or holds a damaged record.
        """
        wanted = _Wanted.since(since)
        with typed(), _without_collector(), self._transaction() as connection:

            def rows_of(table: Table) -> Sequence[Row[Any]]:
                # Sorted here: SQLite would read the whole table in order rather than sort a part.
                stored = connection.execute(select(table).where(*wanted.conditions(table))).all()
                check_versions(table, rows.intact(table, stored))
                return sorted(stored, key=itemgetter(0))

            specs = {row.job_id: rows.stored_spec(row) for row in rows_of(tables.JOB_SPECS)}
            jobs = codec.jobs((row.record, specs[row.id]) for row in rows_of(tables.JOBS))
            written = codec.RUNS.decode(row.record for row in rows_of(tables.TASK_RUNS))
            begun = {job.id: specs[job.id].runs for job in jobs}
            changes = Changes(
                jobs=tuple(jobs),
                runs=tuple(written),
                instances=tuple(
                    codec.INSTANCES.decode(row.record for row in rows_of(tables.INSTANCES))
                ),
                job_accounts=tuple(map(rows.job_account, rows_of(tables.JOB_ACCOUNTS))),
                instance_accounts=tuple(
                    map(rows.instance_account, rows_of(tables.INSTANCE_ACCOUNTS))
                ),
                values=rows.documents(rows_of(tables.DOCUMENTS)),
            )
            self._active.loaded(jobs, begun, written)
        return changes

    def commit(self, changes: Changes) -> None:
        """See `eva_master.ports.Journal.commit`.

        Raises:
            StorageError: The database refused, for instance because the disk is full; nothing of
                `changes` was written.
        """
        begun = self._active.begun(changes.jobs)
        runs = self._active.to_write(changes.jobs, changes.runs)
        unwritten = [job for job in changes.jobs if not self._active.has_spec(job)]
        writes: dict[Table, list[rows.Values]] = {
            tables.JOB_SPECS: _latest(
                lambda job: rows.spec_row(job, self._active.runs_of(job, begun)), unwritten
            ),
            tables.JOBS: _latest(rows.job_row, changes.jobs),
            tables.TASK_RUNS: _latest(rows.run_row, runs),
            tables.INSTANCES: _latest(rows.instance_row, changes.instances),
            tables.JOB_ACCOUNTS: _latest(rows.job_account_row, changes.job_accounts),
            tables.INSTANCE_ACCOUNTS: _latest(rows.instance_account_row, changes.instance_accounts),
            tables.ROUNDS: _latest(rows.round_row, changes.rounds),
            tables.REASONS: _latest(
                rows.reasons_row, (entry for entry in changes.rounds if entry.reasons is not None)
            ),
            tables.DOCUMENTS: _latest(rows.document_row, changes.documents().items()),
            tables.FEED: _latest(rows.feed_row, changes.feed),
        }
        with self._transaction() as connection:
            for table, values in writes.items():
                if values:
                    connection.execute(self._upserts[table], rows.sealed(table, values))
            if writes[tables.REASONS]:
                last = max(values["round"] for values in writes[tables.REASONS])
                old = tables.REASONS.c.round <= last - ROUNDS_EXPLAINED
                connection.execute(delete(tables.REASONS).where(old))
            if any(event.number % _FEED_LOOKED_THROUGH == 0 for event in changes.feed):
                before = tables.FEED.c.at_ms < changes.feed[-1].at_ms - self._feed_kept_ms
                connection.execute(delete(tables.FEED).where(before))
        self._active.written(changes.jobs, runs, begun)

    def document(self, name: str) -> Json:
        """A named document; `None` if there is none.

        Raises:
            StorageError: The database cannot be read, or the document is damaged.
        """
        query = select(tables.DOCUMENTS).where(tables.DOCUMENTS.c.name == name)
        with typed(), self._transaction() as connection:
            stored = rows.intact(tables.DOCUMENTS, connection.execute(query).all())
            return rows.documents(stored).get(name)

    def latest_ms(self) -> Millis:
        """The latest time of any record; 0 in an empty journal.

        Raises:
            StorageError: The database cannot be read.
        """
        with self._transaction() as connection:
            times = (connection.execute(select(func.max(column))).scalar() for column in _TIMES)
            return Millis(max(time or 0 for time in times))

    def rounds(self, *, limit: int, before: int | None = None) -> tuple[Round, ...]:
        """Planning rounds, the newest first.

        Args:
            limit: The largest number of rounds.
            before: Only rounds with a smaller number are read; `None` for the newest.

        Raises:
            StorageError: The database cannot be read.
        """
        query = select(tables.ROUNDS).order_by(tables.ROUNDS.c.number.desc()).limit(limit)
        if before is not None:
            query = query.where(tables.ROUNDS.c.number < before)
        with typed(), self._transaction() as connection:
            stored = rows.intact(tables.ROUNDS, connection.execute(query).all())
            return tuple(map(rows.round_record, stored))

    def explained(self, upto: int | None = None) -> Round | None:
        """See `eva_master.ports.RoundHistory.explained`; any thread may call it.

        Raises:
            StorageError: The database cannot be read.
        """
        both = tables.ROUNDS.join(tables.REASONS, tables.ROUNDS.c.number == tables.REASONS.c.round)
        number = tables.ROUNDS.c.number
        query = select(number).select_from(both).order_by(number.desc()).limit(1)
        if upto is not None:
            query = query.where(number <= upto)
        with typed(), self._transaction() as connection:
            newest = connection.scalar(query)
            if newest is None:
                return None
            whole = select(tables.ROUNDS).where(number == newest)
            reasons = select(tables.REASONS).where(tables.REASONS.c.round == newest)
            (row,) = rows.intact(tables.ROUNDS, connection.execute(whole).all())
            (why,) = rows.intact(tables.REASONS, connection.execute(reasons).all())
            return rows.explained_round(row, why)

    def close(self) -> None:
        """Close the database and release the lock."""
        self._engine.dispose()
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with translated(self._engine.url), self._engine.begin() as connection:
            yield connection


@cache
def upsert(table: Table, dialect: str) -> Insert:
    """A statement that inserts rows of `table`, or replaces those that are there.

    Args:
        table: Has a primary key.
        dialect: ``sqlite`` or ``postgresql``.
    """
    statement = _UPSERTS[dialect](table)
    changed: dict[str, Any] = {
        column.name: statement.excluded[column.name]
        for column in table.columns
        if not column.primary_key and column is not tables.JOB_SPECS.c.runs  # never changes
    }
    if table is tables.JOB_SPECS:
        same = tables.JOB_SPECS.c.runs == statement.excluded.runs
        changed["checksum"] = case((same, statement.excluded.checksum))
    result: Insert = statement.on_conflict_do_update(
        index_elements=list(table.primary_key.columns), set_=changed
    )
    return result


def _latest(row: Callable[[T], rows.Values], records: Iterable[T]) -> list[rows.Values]:
    """Rows of which no two have the same key, since some databases refuse that in one upsert."""
    by_key = {next(iter(values.values())): values for values in map(row, records)}
    return list(by_key.values())


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Conditions for the rows that a master is to have in memory.

    Attributes:
        jobs: On the table of jobs, instances: on that of instances; empty for all rows.
    """

    jobs: tuple[ColumnElement[bool], ...] = ()
    instances: tuple[ColumnElement[bool], ...] = ()

    @classmethod
    def since(cls, since: Millis | None) -> _Wanted:
        if since is None:
            return cls()
        return cls(
            (or_(tables.JOBS.c.ended_ms.is_(None), tables.JOBS.c.ended_ms > since),),
            (or_(tables.INSTANCES.c.ended_ms.is_(None), tables.INSTANCES.c.ended_ms > since),),
        )

    def conditions(self, table: Table) -> tuple[ColumnElement[bool], ...]:
        """The conditions on a table of records or of what belongs to them."""
        if table is tables.JOBS or not self.jobs:
            return self.jobs
        if table is tables.INSTANCES:
            return self.instances
        if "job_id" in table.c:
            return (table.c.job_id.in_(select(tables.JOBS.c.id).where(*self.jobs)),)
        if "instance_id" in table.c:
            names = select(tables.INSTANCES.c.id).where(*self.instances)
            return (table.c.instance_id.in_(names),)
        return ()


def check_versions(table: Table, found: Sequence[Row[Any]]) -> None:
    """Check that this release can read the rows of a table of records.

    Raises:
        JournalTooNew: A later release wrote one of them.
    """
    newest = max((row.version for row in found), default=0) if "version" in table.c else 0
    readable = codec.SPEC_VERSION if table is tables.JOB_SPECS else codec.RECORD_VERSION
    if newest > readable:
        raise JournalTooNew(
            f"the journal's {table.name} have records of version {newest}, "
            f"this release knows {readable}",
            hint=TOO_NEW_HINT,
        )


def _file(url: URL) -> Path | None:
    """The file of an SQLite journal; `None` for other databases."""
    sqlite_file = url.get_backend_name() == "sqlite" and url.database
    return Path(url.database) if sqlite_file and url.database else None


def _check_there(url: URL) -> None:
    """See that a journal that was written before is not missing or empty."""
    path = _file(url)
    if path is None or (path.exists() and path.stat().st_size):
        return
    state = "is empty" if path.exists() else "is missing"
    raise StorageError(
        f"the journal {path} {state}, but this master has keys of its own already:"
        " it had jobs and instances, and a new journal would forget them",
        hint=f"{rows.RESTORE}; to begin a new cluster, choose another state directory",
    )


def _check_whole(engine: Engine) -> None:
    """Look for damage in an SQLite file that is not too large for that.

    Raises:
        StorageError: The journal is damaged.
    """
    path = _file(engine.url)
    if path is None or not path.exists() or path.stat().st_size > _CHECKED_BYTES:
        return
    with engine.connect() as connection:
        # A quick check would pass an index that leaves rows out, which then were forgotten.
        verdict = connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar()
    if verdict != "ok":
        raise StorageError(f"the journal {path} is damaged: {verdict}", hint=rows.RESTORE)


def _check_rows(connection: Connection, url: URL) -> None:
    """See that all rows of an SQLite file that is not too large are as they were written.

    Rows that are loaded later are checked then, but a damaged row may be one that is not.
    """
    path = _file(url)
    if path is None or path.stat().st_size > _CHECKED_BYTES:
        return
    for table in tables.METADATA.sorted_tables:
        for part in connection.execute(select(table)).partitions(_ROWS_AT_ONCE):
            rows.intact(table, part)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Pause the garbage collector: hundreds of thousands of records are made, none is garbage."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


@contextmanager
def typed() -> Iterator[None]:
    """Turn the errors that damaged rows lead to into a `StorageError`."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StorageError(
            f"the journal holds a damaged row: {type(error).__name__}: {error}", hint=rows.RESTORE
        ) from error


def _parse(url: str) -> URL:
    try:
        target = make_url(url)
    except ArgumentError as error:
        raise StorageError(
            f"{url!r} is no database URL", hint="write sqlite:////absolute/path/journal.db"
        ) from error
    if target.get_backend_name() not in _UPSERTS:
        raise StorageError(
            f"a journal cannot be kept in {target.get_backend_name()}",
            hint="use sqlite:////absolute/path/journal.db or postgresql+psycopg://...",
        )
    if target.get_backend_name() == "sqlite" and target.database in {None, "", ":memory:"}:
        raise StorageError(
            "a journal in memory forgets everything", hint="name a file: sqlite:////path/journal.db"
        )
    return target


def _lock(url: URL) -> ProcessLock | None:
    path = _file(url)
    if path is None:
        return None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for file in path.parent.glob(f"{path.name}*"):  # Others may read none of them.
            if (mode := file.stat().st_mode) & 0o077:
                with suppress(PermissionError):  # Another user's: told below.
                    file.chmod(mode & 0o700)
        return ProcessLock(path.with_name(f"{path.name}.lock"))
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}") from error


def _engine(url: URL) -> Engine:
    # A connection to a server may have been cut; one to a file is there, and a ping costs time.
    engine = create_engine(url, pool_pre_ping=url.get_backend_name() != "sqlite")
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _configure_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _configure_sqlite(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=FULL")
    cursor.execute(f"PRAGMA busy_timeout={_BUSY_TIMEOUT_MS}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # The driver itself begins transactions late, and leaves schema changes outside of them.
    connection.exec_driver_sql("BEGIN")


@contextmanager
def translated(url: URL) -> Iterator[None]:
    """Turn what SQLAlchemy raises into a `StorageError` that names the database."""
    try:
        yield
    except (SQLAlchemyError, ImportError) as error:
        name = f"journal {url.render_as_string(hide_password=True)}"
        # The statement and its values say nothing to a user.
        cause = getattr(error, "orig", None) or error
        if _says_full(cause) or (_failed_io(cause) and _has_no_room(_file(url))):
            raise StorageFull(f"{name}: {cause}", hint="make room on its disk") from error
        hint = ""
        if isinstance(cause, sqlite3.DatabaseError):
            hint = rows.RESTORE if _damaged(cause) else _NOT_OURS if _denied(cause) else ""
        raise StorageError(f"{name}: {str(cause)[:_LONGEST_CAUSE]}", hint=hint) from error


def _says_full(cause: BaseException) -> bool:
    code = getattr(cause, "sqlite_errorcode", None)
    return code == sqlite3.SQLITE_FULL or getattr(cause, "sqlstate", None) == _POSTGRES_DISK_FULL


def _failed_io(cause: BaseException) -> bool:
    """Whether a call to the operating system failed; SQLite says so of a quota, too."""
    return getattr(cause, "sqlite_errorcode", 0) & _PRIMARY_CODE == sqlite3.SQLITE_IOERR


def _has_no_room(file: Path | None) -> bool:
    """Whether nothing can be written beside a file for want of room."""
    if file is None:
        return False
    try:
        with TemporaryFile(dir=file.parent, buffering=0) as probe:
            probe.write(b"x" * _PROBE_BYTES)
            os.fsync(probe.fileno())
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return False


def _damaged(cause: sqlite3.DatabaseError) -> bool:
    # A text that is no UTF-8 is found by Python, which gives no code.
    code = getattr(cause, "sqlite_errorcode", sqlite3.SQLITE_MISMATCH)
    return code & _PRIMARY_CODE in _DAMAGED


def _denied(cause: sqlite3.DatabaseError) -> bool:
    code = getattr(cause, "sqlite_errorcode", 0) & _PRIMARY_CODE
    return code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)
