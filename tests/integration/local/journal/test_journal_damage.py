"""Flipped bits in a journal: an error that names the record, or the content as it was written."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from eva_master.adapters.notices.outbox import NoticeOutbox
from eva_master.adapters.pki.node_tokens import NodeTokens
from eva_master.adapters.secrets.key import SecretKey
from eva_master.adapters.secrets.vault import SecretVault
from eva_master.adapters.store import SqlJournal, rows, tables
from eva_master.adapters.store.archive import SqlArchive
from eva_master.adapters.store.join_tokens import JoinTokenTable
from eva_master.adapters.store.launches import LaunchTable
from eva_master.adapters.store.user_tokens import UserTokens
from eva_master.model.changes import Changes, Round
from eva_master.model.feed import FeedEvent, FeedKind
from eva_master.model.notices import Notice
from eva_master.model.planning.reasons import Reasons
from eva_master.model.secrets import Holder
from eva_master.ports.reading import FeedPage
from eva_wire.values.errors import JournalTooNew, StorageError
from eva_wire.values.ids import InstanceId, JobId, Millis
from eva_wire.values.states import JobState
from eva_wire.values.users import Role
from tests.conformance.test_journals import ALL, JOB, RUN

NODE = InstanceId("node")


class Now:
    """A clock that stands still."""

    def now(self) -> Millis:
        return Millis(1_000)


def _vault(journal: SqlJournal) -> SecretVault:
    return SecretVault(journal.engine, SecretKey(bytes(range(32))), Now(), most=9, most_bytes=99)


def _fill(file: Path) -> None:
    """A journal with a row in each of its tables, and as it is after a master has stopped."""
    with SqlJournal.open(f"sqlite:///{file}") as journal:
        others = [replace(RUN, id=f"resnet-1/{it}", index=it) for it in range(2, 30)]
        rounds = (Round(1, 5, 6, 1, 0, {"cost": 0.5}, Reasons()),)
        feed = (FeedEvent(1, Millis(7), FeedKind.PLACED, "resnet-1", "resnet-1/0", "i-1", "alice"),)
        journal.commit(replace(ALL, runs=(RUN, *others), rounds=rounds, feed=feed))
        JoinTokenTable(journal.engine).issue(InstanceId("i-1"), 1, Millis(9_000), Millis(1))
        JoinTokenTable(journal.engine).claim(InstanceId("i-1"), 1, "key", Millis(2))
        LaunchTable(journal.engine).remember(InstanceId("i-1"), 1, {"type": "c7i"})
        nodes = NodeTokens(journal.engine, Now())
        _, secret = nodes.create(NODE, 60_000)
        nodes.redeem(secret, b"machine")
        users = UserTokens(journal.engine, Now())
        token, _ = users.create("ana", Role.USER)
        users.revoke(token.id)
        outbox = NoticeOutbox(journal.engine, ["ops"])
        outbox.read = 1
        outbox.add([Notice("d1", "ops", Millis(7), "late", "late", "text")], Millis(8), {})
        outbox.flush()
        _vault(journal).set((Holder.user("ana"), "TOKEN"), b"x", by="ana")
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA journal_mode=DELETE")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("whole") / "journal.db"
    _fill(file)
    return file


def _content(file: Path) -> object:
    """All that a master reads of a journal."""
    with SqlJournal.open(f"sqlite:///{file}") as journal:
        loaded = journal.load()
        parts = (loaded.jobs, loaded.runs, loaded.instances, loaded.job_accounts)
        nodes = NodeTokens(journal.engine, Now())
        archive = SqlArchive(journal.engine)
        return (
            parts,
            loaded.instance_accounts,
            dict(loaded.values),
            journal.load(Millis(0)).jobs,
            journal.rounds(limit=9),
            journal.explained(),
            archive.job(JobId("resnet-1")),
            archive.owned("alice", ["resnet"]),
            archive.events(FeedPage()),
            UserTokens(journal.engine, Now()).all(),
            (nodes.joined(NODE), nodes._tokens),
            LaunchTable(journal.engine).remembered(InstanceId("i-1"), 1),
            _vault(journal).of(Holder.user("ana")),
            list(NoticeOutbox(journal.engine, ["ops"]).of("ops")),
            JoinTokenTable(journal.engine).claim(InstanceId("i-1"), 1, "other", Millis(3)),
        )


def test_a_flipped_bit_is_an_error_or_changes_nothing(whole: Path, tmp_path: Path) -> None:
    data, right, rng = whole.read_bytes(), _content(whole), random.Random(20)
    used = [at for at, byte in enumerate(data) if byte]  # else most flips are in empty space
    file, refused = tmp_path / "journal.db", list[str]()
    for _ in range(250):
        at, bit = rng.choice(used), 1 << rng.randrange(8)
        file.write_bytes(data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :])
        try:
            found = _content(file)
        except (StorageError, JournalTooNew) as error:
            refused.append(error.hint or error.message)
        else:
            assert found == right, f"bit {bit} of byte {at}"
    assert len(refused) > 150
    assert [it for it in refused if "docs/reference/journal.md" not in it] == []


def _change(file: Path, table: str, column: str) -> str:
    """Change a value of the first row with one so that it stays a value of its kind."""
    with closing(sqlite3.connect(file)) as connection, connection:
        value = connection.execute(f'SELECT "{column}" FROM {table}').fetchone()[0]
        if isinstance(value, int):
            changed: object = value ^ 1
        elif isinstance(value, bytes):
            changed = bytes([value[0] ^ 1]) + value[1:]
        elif not value:
            changed = 1
        else:
            at = next((i for i, it in enumerate(value) if it.isdigit()), len(value) - 1)
            changed = value[:at] + chr(ord(value[at]) ^ 1) + value[at + 1 :]
        connection.execute(
            f'UPDATE {table} SET "{column}" = ? WHERE rowid = (SELECT min(rowid) FROM {table})',
            (changed,),
        )
    return table


def _columns() -> Iterator[tuple[str, str]]:
    for table in tables.METADATA.sorted_tables:
        yield from ((table.name, column.name) for column in table.columns)


@pytest.mark.parametrize(("table", "column"), list(_columns()))
def test_a_changed_value_is_named_with_its_record(
    table: str, column: str, whole: Path, tmp_path: Path
) -> None:
    file = tmp_path / "journal.db"
    file.write_bytes(whole.read_bytes())
    _change(file, table, column)
    with pytest.raises(StorageError) as caught:
        SqlJournal.open(f"sqlite:///{file}").close()
    assert caught.value.message.startswith(f"the journal holds a damaged record of {table}: ")
    assert "docs/reference/journal.md" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("table", "column", "read"),
    [
        ("jobs", "record", lambda it: it.load()),
        ("job_specs", "runs", lambda it: it.load()),
        ("task_runs", "instance", lambda it: it.load()),
        ("instances", "record", lambda it: it.load()),
        ("job_accounts", "charged", lambda it: it.load()),
        ("instance_accounts", "charged", lambda it: it.load()),
        ("documents", "value", lambda it: it.load()),
        ("documents", "value", lambda it: it.document("counters")),
        ("rounds", "at_ms", lambda it: it.rounds(limit=1)),
        ("rounds", "figures", lambda it: it.explained()),
        ("reasons", "record", lambda it: it.explained()),
        ("jobs", "record", lambda it: SqlArchive(it.engine).job(JobId("resnet-1"))),
        ("jobs", "record", lambda it: SqlArchive(it.engine).owned("alice", ["resnet"])),
        ("user_tokens", "revoked_ms", lambda it: UserTokens(it.engine, Now())),
        ("node_tokens", "digest", lambda it: NodeTokens(it.engine, Now())),
        ("launches", "request", lambda it: LaunchTable(it.engine).remembered("i-1", 1)),
        (
            "join_tokens",
            "expires_ms",
            lambda it: JoinTokenTable(it.engine).claim("i-1", 1, "other", Millis(3)),
        ),
    ],
)
def test_damage_is_found_where_it_is_read(
    table: str,
    column: str,
    read: Callable[[SqlJournal], object],
    whole: Path,
    tmp_path: Path,
) -> None:
    """Damage while the master runs, or in a journal that is too large to be looked through."""
    file = tmp_path / "journal.db"
    file.write_bytes(whole.read_bytes())
    with SqlJournal.open(f"sqlite:///{file}") as journal:
        _change(file, table, column)
        with pytest.raises(StorageError, match=f"a damaged record of {table}: "):
            read(journal)


def test_rows_of_before_are_read_and_get_a_checksum_when_they_are_written(
    whole: Path, tmp_path: Path
) -> None:
    file = tmp_path / "journal.db"
    file.write_bytes(whole.read_bytes())
    right = _content(file)
    with closing(sqlite3.connect(file)) as connection, connection:
        for table in tables.METADATA.sorted_tables:
            connection.execute(f"UPDATE {table.name} SET checksum = NULL")
    assert _content(file) == right
    with SqlJournal.open(f"sqlite:///{file}") as journal:
        journal.load()
        journal.commit(Changes(jobs=(JOB.to(JobState.RUNNING, 5),), values={"counters": 1}))
    with closing(sqlite3.connect(file)) as connection:
        sealed = {
            table: connection.execute(
                f"SELECT count(*) FROM {table} WHERE checksum IS NOT NULL"
            ).fetchone()[0]
            for table in ("jobs", "documents", "task_runs")
        }
    assert sealed == {"jobs": 1, "documents": 1, "task_runs": 0}


def test_a_damaged_index_is_found(whole: Path, tmp_path: Path) -> None:
    """Rows that an index leaves out would be forgotten without a word."""
    file = tmp_path / "journal.db"
    with closing(sqlite3.connect(whole)) as connection:
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        named = "SELECT rootpage FROM sqlite_schema WHERE name = 'jobs_by_command'"
        (page,) = connection.execute(named).fetchone()
    data = whole.read_bytes()
    at = data.index(JOB.command.encode(), (page - 1) * size)
    assert at < page * size
    file.write_bytes(data[:at] + b"d" + data[at + 1 :])
    with pytest.raises(StorageError, match="is damaged"):
        SqlJournal.open(f"sqlite:///{file}").close()


def test_a_checksum_is_computed_once_for_each_row_that_is_written_or_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = 0
    usual = rows._checksum

    def counted(values: Iterable[object]) -> int:
        nonlocal computed
        computed += 1
        return usual(values)

    monkeypatch.setattr(rows, "_checksum", counted)
    with SqlJournal.open(f"sqlite:///{tmp_path}/journal.db") as journal:
        journal.commit(ALL)
        # A job with its spec and account, a task run, an instance with its account, two documents.
        assert computed == 8
        journal.load()
        assert computed == 16
