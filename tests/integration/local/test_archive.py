"""What is over is read page by page, and neither a page nor a start reads more than it needs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import event

from eva_master.adapters.store import SqlArchive, SqlJournal
from eva_master.model.catalog import InstanceType, Offering
from eva_master.model.changes import Changes, InstanceAccount, JobAccount
from eva_master.model.records import Ended, Instance, Job, Outcome, TaskRun
from eva_master.model.resources import Resources
from eva_wire.values.ids import Exact, Family, InstanceId, JobId, Millis, Price, run_id
from tests.fakes.archive import LoadedArchive
from tests.fakes.rpc.server import spec

OFFERING = Offering(InstanceType("c7i.large", Family("c7i"), Resources(0, 2, 4)), Price(100))
ENDED, LATER = 1_000, 5_000


def job(number: int, *, over: int | None, name: str = "job") -> Job:
    state = ("running", 1) if over is None else ("succeeded", over)
    name = f"{name}{number % 3}"
    owner = ("ada", "bob")[number % 2]
    return Job(
        JobId(f"{name}-{number}"),
        spec(name, tasks=2, owner=owner),
        Millis(number),
        (state,),
        f"c{number}",
    )


def instance(number: int, *, over: int | None) -> Instance:
    state = ("ready", 1) if over is None else ("gone", over)
    return Instance(
        InstanceId(f"i{number:05d}"), OFFERING, (state,), Millis(number), up_ms=Millis(1)
    )


def history(jobs: int, alive: int) -> Changes:
    """So many jobs and instances, all over at `ENDED` but the last ones."""
    first = jobs - alive + 1
    all_jobs = [job(n, over=ENDED if n < first else None) for n in range(1, jobs + 1)]
    instances = [instance(n, over=ENDED if n < first else None) for n in range(1, jobs + 1)]
    return Changes(
        jobs=tuple(all_jobs),
        runs=tuple(
            TaskRun(run_id(it.id, index), it.id, index, it.history)
            for it in all_jobs
            for index in range(2)
        ),
        instances=tuple(instances),
        job_accounts=tuple(
            JobAccount(
                it.id,
                Exact(10**20 + 1),
                spot=Exact(10**20),
                spot_ms=10**12,
                listed=Exact(3 * 10**20 + 1),
                interruptions=7,
            )
            for it in all_jobs[::2]
        ),
        instance_accounts=tuple(
            InstanceAccount(it.id, Millis(2), Exact(7)) for it in instances[::2]
        ),
        values={"counters": {"jobs": jobs}},
    )


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqlJournal]:
    with SqlJournal.open(f"sqlite:///{tmp_path}/journal.db") as opened:
        yield opened


def test_an_archive_says_what_the_journal_holds(journal: SqlJournal) -> None:
    journal.commit(history(12, 3))
    archive, plain = SqlArchive(journal.engine), LoadedArchive(journal.load)
    names = plain.page_of_jobs(None, 100)
    assert len(names) == 12
    for before in (None, *names):
        for limit in (1, 4, 100):
            page = archive.page_of_jobs(before, limit)
            assert list(page) == list(plain.page_of_jobs(before, limit))
    assert archive.records_of_jobs(names) == plain.records_of_jobs(names)
    assert archive.records_of_jobs([JobId("none-1")]) == {}
    for name in names:
        assert archive.job(name) == plain.job(name)
    for owner in ("ada", "bob", "eve"):
        for name in ("job0", "job1", "job2", "job3"):
            assert archive.newest_named(owner, name) == plain.newest_named(owner, name)
    references = [*names, "job0", "job1", "job2", "job3", "none-1"]
    for owner in ("ada", "bob", "eve"):
        assert archive.owned(owner, references) == plain.owned(owner, references)
        assert archive.owned(owner, []) == {}
    for command, owner in itertools.product(("c1", "c12", "c13"), ("ada", "bob", "eve")):
        assert archive.submitted(owner, command) == plain.submitted(owner, command)
    instances = plain.page_of_instances(None, 100)
    assert list(archive.page_of_instances(instances[3], 5)) == list(instances[4:9])
    assert archive.records_of_instances(instances) == plain.records_of_instances(instances)


def test_an_archive_knows_where_the_end_of_a_job_began(journal: SqlJournal) -> None:
    end = Ended(JobId("b-2"), Outcome.CANCELLED, JobId("a-1"))
    last = Job(JobId("c-3"), spec("c"), Millis(1), (("cancelled", 1),), unmet=end)
    going = Job(JobId("c-4"), spec("c"), Millis(1), (("running", 1),))
    journal.commit(Changes(jobs=(last, going)))
    found = SqlArchive(journal.engine).owned("ada", ["c-3", "c"])
    assert found == {
        "c-3": (last.id, Ended(last.id, Outcome.CANCELLED, JobId("a-1"))),
        "c": (going.id, None),
    }


def test_a_job_of_ten_tasks_and_more_has_them_in_order(journal: SqlJournal) -> None:
    many = Job(JobId("many-1"), spec("many", tasks=12), Millis(1), (("succeeded", 1),))
    runs = [TaskRun(run_id(many.id, index), many.id, index, many.history) for index in range(12)]
    journal.commit(Changes(jobs=(many,), runs=tuple(runs)))
    record = SqlArchive(journal.engine).job(many.id)
    assert record is not None
    assert list(record.runs) == runs


@pytest.fixture
def plans(journal: SqlJournal) -> Iterator[list[str]]:
    """How SQLite carried out every query since, step by step."""
    journal.commit(history(400, 3))
    found: list[str] = []

    def explain(connection, cursor, statement, parameters, *_) -> None:  # type: ignore[no-untyped-def]
        if statement.startswith("SELECT"):
            rows = connection.connection.driver_connection.execute(
                f"EXPLAIN QUERY PLAN {statement}", parameters
            )
            found.extend(row[3] for row in rows)

    event.listen(journal.engine, "before_cursor_execute", explain)
    yield found
    event.remove(journal.engine, "before_cursor_execute", explain)


QUESTIONS: dict[str, Callable[[SqlJournal, SqlArchive], object]] = {
    "start": lambda journal, _: journal.load(Millis(LATER)),
    "job": lambda _, archive: archive.job(JobId("job1-7")),
    "name": lambda _, archive: archive.newest_named("ada", "job1"),
    "owned": lambda _, archive: archive.owned("ada", ["job1", "job1-7", "job2"]),
    "command": lambda _, archive: archive.submitted("ada", "c7"),
    "first page": lambda _, archive: archive.page_of_jobs(None, 10),
    "next page": lambda _, archive: archive.page_of_jobs(JobId("job1-7"), 10),
    "records": lambda _, archive: archive.records_of_jobs([JobId("job1-7"), JobId("job2-8")]),
    "instances": lambda _, archive: archive.page_of_instances(InstanceId("i00007"), 10),
    "instance records": lambda _, archive: archive.records_of_instances([InstanceId("i00007")]),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_no_question_reads_a_table_from_end_to_end(
    journal: SqlJournal, plans: list[str], question: str
) -> None:
    QUESTIONS[question](journal, SqlArchive(journal.engine))
    assert plans
    # A page follows the index of numbers, and ends after so many. All documents are wanted.
    allowed = re.compile(r"SCAN (documents$|\w+ USING (COVERING )?INDEX \w+_by_number)")
    assert [it for it in plans if it.startswith("SCAN") and not allowed.match(it)] == []


def test_a_start_decodes_nothing_of_what_was_over_before(journal: SqlJournal) -> None:
    journal.commit(history(400, 3))
    loaded = journal.load(Millis(ENDED))
    assert [it.id for it in loaded.jobs] == ["job0-399", "job1-400", "job2-398"]
    assert len(loaded.runs) == 6
    assert len(loaded.instances) == 3
    assert {account.job for account in loaded.job_accounts} <= {it.id for it in loaded.jobs}
    assert len(journal.load(Millis(ENDED - 1)).jobs) == 400


def test_the_journal_forgets_the_specs_of_jobs_that_have_ended(journal: SqlJournal) -> None:
    changes = history(10, 3)
    journal.commit(changes)
    assert set(journal._active._jobs) == {it.id for it in changes.jobs[-3:]}
    ended = replace(changes.jobs[-1], history=(("succeeded", 9),))
    journal.commit(Changes(jobs=(ended,)))
    assert set(journal._active._jobs) == {it.id for it in changes.jobs[-3:-1]}
    assert journal.load().jobs[journal.load().jobs.index(ended)].spec == ended.spec
