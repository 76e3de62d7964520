"""A master killed in the middle of its commits loses nothing that it was told is safe."""

from __future__ import annotations

import multiprocessing
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from eva_master.adapters.store import SqlJournal
from eva_master.model.changes import Changes, JobAccount
from eva_master.model.job import JobSpec
from eva_master.model.records import Job, TaskRun
from eva_wire.values.errors import JournalInUse

KILLS = 8
COPIES = 20
JOB = Job("a-1", JobSpec("a", "alice", ()), 1, (("pending", 1),))

# A server without threads, so that starting a writer costs a fork and not a start of Python.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["eva_master.adapters.store"])


def context(number: int) -> Changes:
    """Changes that touch every table, each record bearing the same number."""
    return Changes(
        jobs=(replace(JOB, attempt=number),),
        runs=tuple(
            TaskRun(f"a-1/{index}", JOB.id, index, (("waiting", 1),), moves=number)
            for index in range(COPIES)
        ),
        job_accounts=(JobAccount(JOB.id, charged=number),),
        values={"counters": number},
    )


def numbers(changes: Changes) -> set[object]:
    """The numbers found in what was loaded: one, unless a transaction was torn."""
    assert len(changes.runs) in {0, COPIES}
    return {
        *(job.attempt for job in changes.jobs),
        *(run.moves for run in changes.runs),
        *(account.charged for account in changes.job_accounts),
        *changes.values.values(),
    }


def write(url: str, first: int, acknowledge: Connection) -> None:
    """Commit turn after turn until killed; runs in a process of its own."""
    journal = SqlJournal.open(url)
    journal.load()
    for number in range(first, first + 1_000_000):
        journal.commit(context(number))
        acknowledge.send(number)


@contextmanager
def writer(
    url: str, first: int
) -> Iterator[tuple[multiprocessing.process.BaseProcess, Connection]]:
    ours, theirs = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=write, args=(url, first, theirs))
    process.start()
    theirs.close()
    try:
        yield process, ours
    finally:
        process.kill()
        process.join()
        ours.close()


def acknowledged(pipe: Connection, patience_s: float = 60.0) -> int:
    assert pipe.poll(patience_s), "the writer is stuck"
    number: int = pipe.recv()
    return number


def test_sigkill_loses_no_acknowledged_commit_and_tears_none(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/journal.db"
    chance = random.Random(7)
    last = 0
    for _ in range(KILLS):
        with writer(url, last + 1) as (process, pipe):
            for _ in range(chance.randint(1, 5)):
                last = acknowledged(pipe)
            # Not to wait for anything: the kill is to hit any moment of a commit.
            time.sleep(chance.uniform(0.0, 0.003))
            process.kill()
            process.join()
            try:
                while True:
                    last = pipe.recv()
            except EOFError:
                pass
        with SqlJournal.open(url) as journal:
            found = numbers(journal.load())
        assert found in ({last}, {last + 1})
        last = max(found)  # type: ignore[type-var, assignment]


def test_a_second_master_is_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/journal.db"
    with writer(url, 1) as (process, pipe):
        acknowledged(pipe)
        with pytest.raises(JournalInUse, match=f"process {process.pid}") as caught:
            SqlJournal.open(url)
        assert caught.value.hint
    SqlJournal.open(url).close()
