"""The journal's dealings with its database: schema, versions, failures, rounds."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine
from sqlalchemy.dialects import postgresql

from eva_master.adapters.store import SqlJournal
from eva_master.adapters.store.journal import upsert
from eva_master.adapters.store.tables import METADATA, VERSIONED
from eva_master.model.changes import Changes, Round
from eva_master.model.job import JobSpec
from eva_master.model.records import Job
from eva_wire.values.errors import JournalTooNew, JournalTooOld, StorageError

JOB = Job("a-1", JobSpec("a", "alice", ()), 1, (("pending", 1),))
ROUNDS = tuple(Round(number, number * 10, 3, 2, 1, {"savings": 0.5}) for number in range(1, 8))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "100% of it" / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[SqlJournal]:
    with SqlJournal.open(f"sqlite:///{path}") as opened:
        yield opened


def execute(path: Path, *statements: str) -> None:
    """Change the database behind the journal's back."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()


def test_migrations_make_the_schema_that_the_code_uses(journal: SqlJournal, path: Path) -> None:
    engine = create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, METADATA) == []
    engine.dispose()


def test_commits_survive_a_power_cut(journal: SqlJournal) -> None:
    with journal._transaction() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL


def test_a_migration_that_fails_leaves_the_database_as_it_was(path: Path) -> None:
    path.parent.mkdir()
    execute(path, "CREATE TABLE documents (foreign_to_eva INTEGER)")
    with pytest.raises(StorageError, match="documents"):
        SqlJournal.open(f"sqlite:///{path}")
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == [("documents",)]


def test_a_newer_schema_is_refused(path: Path) -> None:
    SqlJournal.open(f"sqlite:///{path}").close()
    execute(path, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(JournalTooNew, match="9999") as caught:
        SqlJournal.open(f"sqlite:///{path}")
    assert "later" in caught.value.hint


@pytest.mark.parametrize("table", [table.name for table in VERSIONED])
def test_a_newer_record_is_refused(path: Path, table: str) -> None:
    SqlJournal.open(f"sqlite:///{path}").close()
    columns = next(each for each in VERSIONED if each.name == table).columns
    known = {"version": "9", "checksum": "NULL"}
    values = [known.get(column.name, "'1'") for column in columns]
    execute(path, f"INSERT INTO {table} VALUES ({', '.join(values)})")
    refusal = pytest.raises(JournalTooNew, match=f"{table} have records of version 9")
    with SqlJournal.open(f"sqlite:///{path}") as journal, refusal:
        journal.load()


def test_a_journal_from_before_the_first_release_is_left_alone(path: Path) -> None:
    SqlJournal.open(f"sqlite:///{path}").close()
    execute(path, "UPDATE alembic_version SET version_num = '0012'")
    with pytest.raises(JournalTooOld, match="0012 of a version from before the first release"):
        SqlJournal.open(f"sqlite:///{path}")


def test_a_refused_open_keeps_no_lock(path: Path) -> None:
    SqlJournal.open(f"sqlite:///{path}").close()
    execute(path, "UPDATE alembic_version SET version_num = '9' || version_num")
    with pytest.raises(JournalTooNew):
        SqlJournal.open(f"sqlite:///{path}")
    execute(path, "UPDATE alembic_version SET version_num = substr(version_num, 2)")
    SqlJournal.open(f"sqlite:///{path}").close()


def test_a_commit_that_fails_writes_nothing_and_can_be_repeated(
    journal: SqlJournal, path: Path
) -> None:
    changes = Changes(jobs=(JOB,), values={"counters": 1})
    execute(
        path,
        "CREATE TRIGGER full BEFORE INSERT ON documents"
        " BEGIN SELECT RAISE(ABORT, 'disk is full'); END",
    )
    with pytest.raises(StorageError, match="disk is full"):
        journal.commit(changes)
    assert not journal.load()
    execute(path, "DROP TRIGGER full")
    journal.commit(changes)
    assert journal.load() == changes


def test_the_spec_of_a_job_is_written_once(journal: SqlJournal, path: Path) -> None:
    journal.commit(Changes(jobs=(JOB,)))
    execute(
        path,
        "CREATE TRIGGER once BEFORE UPDATE ON job_specs BEGIN SELECT RAISE(ABORT, 'twice'); END",
    )
    journal.commit(Changes(jobs=(replace(JOB, attempt=1),)))
    loaded = journal.load().jobs
    journal.commit(Changes(jobs=loaded))


def test_a_damaged_record_is_told(journal: SqlJournal, path: Path) -> None:
    journal.commit(Changes(jobs=(JOB,)))
    execute(path, """UPDATE jobs SET record = '{"id":1}'""")
    with pytest.raises(StorageError, match="damaged record"):
        journal.load()


def test_rounds_are_read_back_newest_first(journal: SqlJournal) -> None:
    journal.commit(Changes(rounds=ROUNDS))
    assert journal.rounds(limit=2) == (ROUNDS[6], ROUNDS[5])
    assert journal.rounds(limit=2, before=6) == (ROUNDS[4], ROUNDS[3])
    assert journal.rounds(limit=9, before=2) == (ROUNDS[0],)
    assert journal.rounds(limit=9, before=1) == ()


@pytest.mark.parametrize(
    "url", ["nonsense", "mysql://host/db", "sqlite://", "sqlite:///:memory:", "sqlite:////proc/x/j"]
)
def test_an_unusable_url_is_told(url: str) -> None:
    with pytest.raises(StorageError):
        SqlJournal.open(url)


def test_passwords_stay_out_of_messages() -> None:
    with pytest.raises(StorageError) as caught:
        SqlJournal.open("postgresql+psycopg://eva:hunter2@127.0.0.1:1/eva")
    assert "hunter2" not in caught.value.message


@pytest.mark.parametrize("table", METADATA.sorted_tables, ids=lambda table: table.name)
def test_every_table_can_be_written_in_postgresql(table: object) -> None:
    statement = upsert(table, "postgresql").compile(dialect=postgresql.dialect())  # type: ignore[arg-type]
    assert "ON CONFLICT" in str(statement)
    assert "DO UPDATE SET" in str(statement)
