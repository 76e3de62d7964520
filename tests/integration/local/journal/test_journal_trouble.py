"""Journals that are full, damaged or lost: nothing goes on silently, and nothing is forgotten."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError

from eva_master.adapters.loop.clock import SystemClock
from eva_master.adapters.loop.gateway import LoopGateway
from eva_master.adapters.loop.inbox import LiveInbox
from eva_master.adapters.store import SqlJournal
from eva_master.adapters.store.journal import translated
from eva_master.adapters.store.patience import PatientJournal
from eva_master.control.loop import Loop
from eva_master.control.machine import Machine
from eva_master.control.settings import Settings
from eva_master.control.state.store import State
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.changes import Changes
from eva_master.model.events import JobSubmitted, Tick
from eva_master.model.job import JobSpec, Program, TaskSpec
from eva_master.model.records import Job
from eva_master.model.resources import Resources
from eva_master.ports.reading import Pause
from eva_wire.values.errors import EvaError, StorageError, StorageFull
from eva_wire.values.ids import Family, JobId, Millis, Price, Workload
from eva_wire.values.states import JobState
from tests.fakes.patience import DEADLINE_S

SIZE = Resources(0, 1000, 1024)
FAMILY = Family("c")
OFFERING = Offering(InstanceType("c.1", FAMILY, SIZE), Price(1_000_000))
LARGE = "x" * 100_000


class Noon:
    """A clock that stands still."""

    def now(self) -> Millis:
        return Millis(1_000)


def job(name: str, *, run: str = "true") -> JobSpec:
    task = TaskSpec(Workload("w"), Program(run), ((FAMILY, SIZE),))
    return JobSpec(name, "me", (task,))


def fill(journal: SqlJournal) -> None:
    """Let the database grow no more, as on a full disk."""
    with journal.engine.connect() as connection:
        used = connection.exec_driver_sql("PRAGMA page_count").scalar()
        connection.exec_driver_sql(f"PRAGMA max_page_count={used}")


def make_room(journal: SqlJournal) -> None:
    with journal.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count=1000000")


def record(name: str, *, run: str = LARGE) -> Job:
    return Job(JobId(f"{name}-1"), job(name, run=run), 1, ((JobState.PENDING.value, 1),))


def test_a_full_disk_is_told_from_other_trouble(tmp_path: Path) -> None:
    with SqlJournal.open(f"sqlite:///{tmp_path}/journal.db") as journal:
        fill(journal)
        with pytest.raises(StorageFull, match="full"):
            journal.commit(Changes(jobs=(record("a"),)))
        make_room(journal)
        journal.commit(Changes(jobs=(record("a"),)))
        assert [it.id for it in journal.load().jobs] == ["a-1"]


def test_a_commit_waits_for_room_and_says_so(tmp_path: Path) -> None:
    told: list[Pause | None] = []
    with SqlJournal.open(f"sqlite:///{tmp_path}/journal.db") as journal:

        def paused(pause: Pause | None) -> None:
            told.append(pause)
            if pause is not None:
                make_room(journal)

        patient = PatientJournal(journal, paused, threading.Event(), Noon())
        fill(journal)
        patient.commit(Changes(jobs=(record("a"),)))
        assert told[0] is not None
        assert told[0].since_ms == 1_000
        assert "full" in told[0].reason
        assert "make room" in told[0].hint
        assert told[1:] == [None]
        assert [it.id for it in patient.load().jobs] == ["a-1"]


def test_a_master_that_stops_does_not_wait_for_room(tmp_path: Path) -> None:
    stopping = threading.Event()
    stopping.set()
    with SqlJournal.open(f"sqlite:///{tmp_path}/journal.db") as journal:
        fill(journal)
        with pytest.raises(StorageFull):
            PatientJournal(journal, print, stopping, Noon()).commit(Changes(jobs=(record("a"),)))


@contextmanager
def without_rights() -> Iterator[None]:
    """Be somebody whom permissions concern."""
    if os.geteuid():
        yield
        return
    os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.parametrize("what", ["file", "directory", "unreadable"])
def test_a_journal_that_cannot_be_written_is_refused_at_once(what: str) -> None:
    """Not by the first commit of a master that has said that it is up."""
    # Root's own directory may be closed to the user that root becomes.
    with TemporaryDirectory(dir=None if os.geteuid() else "/tmp") as made:
        home = Path(made)
        path = home / "journal.db"
        SqlJournal.open(f"sqlite:///{path}").close()
        for one in home.iterdir():
            one.chmod(0o666)
        path.chmod({"file": 0o444, "directory": 0o666, "unreadable": 0}[what])
        home.chmod(0o555 if what == "directory" else 0o777)
        try:
            with without_rights(), pytest.raises(StorageError, match="journal") as refused:
                SqlJournal.open(f"sqlite:///{path}", expected=True)
            assert "needs to write to it and to its directory" in refused.value.hint
        finally:
            home.chmod(0o700)


def test_a_journal_that_is_a_directory_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is a directory"):
        SqlJournal.open(f"sqlite:///{tmp_path}", expected=True)


@pytest.mark.parametrize(("code", "full"), [(errno.EDQUOT, True), (errno.EIO, False)])
def test_a_quota_that_is_used_up_is_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, full: bool
) -> None:
    """SQLite says of both that the call failed."""
    failure = sqlite3.OperationalError("disk I/O error")
    failure.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE

    def failing(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync", failing)
    with pytest.raises(StorageError) as told, translated(make_url(f"sqlite:///{tmp_path}/j.db")):
        raise DBAPIError("COMMIT", None, failure)
    assert isinstance(told.value, StorageFull) == full


class Nobody:
    """A cloud, workers, planner or store that is asked in vain."""

    def __getattr__(self, _name: str) -> Any:
        return lambda *_: None


async def test_the_loop_goes_on_by_itself_and_carries_out_what_waited(tmp_path: Path) -> None:
    """What was asked before and while the disk was full is answered, and nothing happens twice."""
    clock = SystemClock()
    inbox = LiveInbox(clock)
    gateway = LoopGateway(inbox)
    stopping = threading.Event()
    journal = SqlJournal.open(f"sqlite:///{tmp_path}/journal.db")
    nobody: Any = Nobody()
    loop = Loop(
        Machine(State((OFFERING,)), Settings()),
        clock=clock,
        inbox=inbox,
        journal=PatientJournal(journal, gateway.paused, stopping, clock),
        cloud=nobody,
        workers=nobody,
        planner=nobody,
        checkpoints=nobody,
        replies=gateway,
    )

    def run() -> None:
        loop.start()
        while not stopping.is_set():
            loop.step()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        async with asyncio.timeout(DEADLINE_S):
            await gateway.command(JobSubmitted("one", job("first")))
            fill(journal)
            with pytest.raises(EvaError, match="not on record yet"):
                await gateway.command(JobSubmitted("two", job("large", run=LARGE)))
            with pytest.raises(EvaError, match="nothing can be accepted now"):
                await gateway.command(JobSubmitted("three", job("late")))
            assert gateway.pause
            assert len((await gateway.model()).active) == 1, "what is on record is shown"
            make_room(journal)
            while gateway.pause:
                await asyncio.sleep(0.01)
            # The same command again is answered with the job that it made.
            await gateway.command(JobSubmitted("two", job("large", run=LARGE)))
            await gateway.command(JobSubmitted("three", job("late")))
    finally:
        stopping.set()
        inbox.post(Tick())
        await asyncio.to_thread(thread.join)
    names = sorted(it.spec.name for it in journal.load().jobs)
    journal.close()
    assert names == ["first", "large", "late"]


@pytest.mark.parametrize("left", [None, b""])
def test_a_journal_that_was_lost_is_not_begun_anew(tmp_path: Path, left: bytes | None) -> None:
    path = tmp_path / "journal.db"
    if left is not None:
        path.write_bytes(left)
    with pytest.raises(StorageError, match="would forget them") as refused:
        SqlJournal.open(f"sqlite:///{path}", expected=True)
    assert "backup" in refused.value.hint
    assert not path.exists() or not path.stat().st_size
    SqlJournal.open(f"sqlite:///{path}").close()
    SqlJournal.open(f"sqlite:///{path}", expected=True).close()


def test_a_master_whose_journal_was_lost_says_so(tmp_path: Path) -> None:
    (tmp_path / "pki").mkdir()
    (tmp_path / "pki" / "ca.key").touch()
    (tmp_path / "journal.db").touch()
    command = [sys.executable, "-m", "eva_client.cli", "up", "--state-dir", str(tmp_path)]
    master = subprocess.run(
        [*command, "--listen", "127.0.0.1:0"],
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert master.returncode == 1
    assert "journal.db is empty" in master.stderr
    assert "backup" in master.stderr
    assert "Traceback" not in master.stderr


def test_damage_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    """Whatever byte is wrong: the journal opens as it was, or it is an error of ours."""
    path = tmp_path / "journal.db"
    records = tuple(record(f"job{number}", run=f"echo {number}") for number in range(30))
    with SqlJournal.open(f"sqlite:///{path}") as journal:
        journal.commit(Changes(jobs=records))
        whole = journal.load()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = path.read_bytes()
    rng = random.Random(12)
    used = [at for at, byte in enumerate(data) if byte]
    refused = 0
    for at in rng.sample(used, 60):
        damaged = bytearray(data)
        damaged[at] ^= 1 << rng.randrange(8)
        path.write_bytes(damaged)
        for extra in path.parent.glob("journal.db-*"):
            extra.unlink()
        try:
            with SqlJournal.open(f"sqlite:///{path}", expected=True) as journal:
                State.restored((OFFERING,), journal.load())
        except StorageError:
            refused += 1
    assert refused > 10
    assert len(whole.jobs) == 30


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE documents SET value = 'no JSON'",
        "INSERT INTO job_accounts VALUES ('a-1', 'many', '0', 0, 0, '0', 0, '0', 0, NULL)",
        "DELETE FROM job_specs",
        "UPDATE jobs SET record = '{'",
        "UPDATE jobs SET record = '{', checksum = NULL",
    ],
)
def test_a_damaged_row_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "journal.db"
    with SqlJournal.open(f"sqlite:///{path}") as journal:
        machine = Machine(State((OFFERING,)), Settings())
        machine.recover(SystemClock().now())
        machine.handle([JobSubmitted("c", job("a"))], SystemClock().now())
        journal.commit(machine.take_changes())
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute(damage).rowcount
        connection.commit()
    refusal = pytest.raises(StorageError, match="damaged")
    with refusal as refused, SqlJournal.open(f"sqlite:///{path}") as journal:
        journal.load()
    assert "backup" in refused.value.hint
